"""What answers are held to, judged by llguidance itself: each byte is a token."""

from __future__ import annotations

import json
from typing import Any

import llguidance
import pytest

from tests.chat.dialects.telling import TOOLS, calls, format_of, read
from tests.chat.dialects.test_dialects import BOTH, ROME
from tests.support.cases import for_each
from tests.support.models import templates
from worker.chat.format import ChatFormat
from worker.chat.message import Tool
from worker.chat.reader import Arguments
from worker.chat.thinking import Thinking
from worker.errors import RequestError
from worker.grammar.constraint import Constraint, schema_constraint, schema_text

pytestmark = pytest.mark.skipif(not templates.names(), reason=templates.WHY_NOT)

BYTES = llguidance.LLTokenizer("byte")
# What of the texts stands before the calls.
BEFORE = {
    "openai-gpt-oss-120b": "<|channel|>commentary<|message|>T<|end|><|start|>assistant",
    "meetkai-functionary-medium-v3.2": ">>>all\nT>>>",
    "Kimi-K3": "<|open|>response<|sep|>T<|close|>response<|sep|>",
    "muse-glimmer": " to=user<|message|>T<|eom|><|start|>assistant",
}
# Texts that models write, but whose markers the constraint writes out.
LOOSE = {
    "ibm-granite-granite-4.0": "A call without arguments",
    "meta-llama-Llama-3.1-8B-Instruct": "Several calls are not asked for",
    "meta-llama-Llama-3.2-3B-Instruct": "Several calls are not asked for",
    "mistralai-Mistral-Nemo-Instruct-2407": "Ids are ours",
    "unsloth-mistral-Devstral-Small-2507": "A mark is left out",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "Ids are ours",
    "MiniMax-M1": "Several calls between one pair of marks",
    "Qwen3.5-4B": "A mark is left out",
    "openai-gpt-oss-120b": "One call ends an answer",
    "muse-glimmer": "One message ends an answer",
}


def constraint_of(name: str, **options: Any) -> Constraint | None:
    given: dict[str, Any] = {
        "prompt": "", "thinking": Thinking(), "required": True, "parallel": True,
        "loosened": schema_text, **options,
    }  # fmt: skip
    return format_of(name).constraint(given.pop("tools", TOOLS), **given)


def accepted(constraint: Constraint, text: str) -> tuple[str, bool]:
    """(what of the text is allowed, whether it may end there)"""
    grammar = llguidance.LLMatcher.grammar_from_lark(constraint.text)
    matcher = llguidance.LLMatcher(BYTES, grammar)
    assert not matcher.is_error(), (matcher.get_error(), constraint.text)
    data = text.encode()
    for place, byte in enumerate(data):
        if not matcher.consume_token(byte):
            return data[:place].decode(errors="ignore"), False
    return text, matcher.is_accepting()


def called(name: str) -> str:
    """A text's calls alone."""
    text = BOTH[name]
    return text.removeprefix(BEFORE.get(name, "T")).lstrip()


@for_each("name", sorted(BOTH.keys() - LOOSE.keys()))
def test_required_calls_are_what_models_write(name: str) -> None:
    """Two calls fit, a name that no tool has does not, and an answer needs a call."""
    made = constraint_of(name)
    assert made is not None
    assert made.required
    assert accepted(made, called(name)) == (called(name), True)
    other = called(name).replace("sky", "sun")
    assert accepted(made, other)[0].endswith("s")
    assert accepted(made, "")[1] is False


@for_each("name", BOTH)
def test_one_required_call(name: str) -> None:
    """Its text is read as one call, by each family."""
    off = Thinking(is_on=False)
    made = constraint_of(name, tools=TOOLS[:1], parallel=False, thinking=off)
    assert made is not None
    text = written(made)
    found = read(format_of(name), [text], prompt=">>>" if "v3.2" in name else "")
    assert [type(event) for event in found] == [type(event) for event in calls(("sky", ROME))]


def written(constraint: Constraint) -> str:
    """A short text that the constraint allows: the first byte of a list of likely ones that may
    come, again and again."""
    grammar = llguidance.LLMatcher.grammar_from_lark(constraint.text)
    matcher = llguidance.LLMatcher(BYTES, grammar)
    assert not matcher.is_error(), (matcher.get_error(), constraint.text)
    data = b""
    while not matcher.is_accepting():
        allowed = allowed_bytes(matcher)
        byte = next(byte for byte in LIKELY if byte in allowed)
        assert matcher.consume_token(byte)
        data += bytes([byte])
        assert len(data) < 500, data
    return data.decode()


LIKELY = (
    *b"}]>)<[{\"|/:,_=`", *b"skycalfuntiomnedrpgvjh", *range(97, 123), *range(65, 91),
    *b"0123456789-\n ", *range(128, 256), *range(32, 127),
)  # fmt: skip


def allowed_bytes(matcher: llguidance.LLMatcher) -> set[int]:
    mask = matcher.compute_bitmask()
    return {byte for byte in range(256) if mask[byte // 8] >> (byte % 8) & 1}


@pytest.mark.parametrize(
    ("name", "control", "after"),
    [
        ("ibm-granite-granite-3.3-2B-Instruct", "<|tool_call|>", "<|tool_call|>"),
        ("google-gemma-4-31B-it", "<|tool_call>", "<|tool_call>"),
        ("Qwen-Qwen3-0.6B", "<tool_call>", "<tool_call>"),
    ],
)
def test_control_tokens_are_named_by_their_ids(name: str, control: str, after: str) -> None:
    """They have no text that a constraint could ask for; others are texts."""
    made = ChatFormat(format_of(name).template, {control: 7, "<|other|>": 8}, ["</tool_call>"])
    assert made.controls == {control: 7}
    options: dict[str, Any] = {
        "prompt": "", "thinking": Thinking(), "parallel": True, "loosened": schema_text
    }  # fmt: skip
    required = made.constraint(TOOLS, required=True, **options)
    lazy = made.constraint(TOOLS, required=False, **options)
    assert required is not None
    assert lazy is not None
    assert "<[7]>" in required.text
    assert f'"{control}"' not in required.text
    assert "</tool_call>" not in required.text  # an end token: the grammar is at its end there
    assert (lazy.starts_after_tokens, lazy.starts_after) == ((7,), ())
    assert not lazy.required
    assert lazy.repeats
    plain = constraint_of(name, required=False)
    assert plain is not None
    assert plain.starts_after == (after,)


FREE: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}},
    "required": ["b"],
}
# Each family's call of `sky` with these arguments, and one argument, numbered by its place.
IN_ORDER = {
    "Qwen-Qwen3-0.6B": (
        '<tool_call>{{"name": "sky", "arguments": {{{}}}}}</tool_call>', '"{}": 1', ", ",
    ),
    "Qwen3-Coder": (
        "<tool_call>\n<function=sky>\n{}\n</function>\n</tool_call>",
        "<parameter={}>1</parameter>", "\n",
    ),
    "LFM2-8B-A1B": ("<|tool_call_start|>[sky({})]<|tool_call_end|>", "{}=1", ", "),
    "google-gemma-4-31B-it": ("<|tool_call>call:sky{{{}}}<tool_call|>", "{}:1", ","),
    "MiniMax-M3": (
        ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="sky">{}]<]minimax[>[</invoke>'
        "]<]minimax[>[</tool_call>", "]<]minimax[>[<{0}>1]<]minimax[>[</{0}>", "\n",
    ),
    "Kimi-K3": (
        '<|open|>tools<|sep|><|open|>call tool="sky" index="1"<|sep|>{}<|close|>call<|sep|>'
        "<|close|>tools<|sep|>",
        '<|open|>argument key="{}" type="number"<|sep|>1<|close|>argument<|sep|>', "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_ORDER)
def test_arguments_come_in_any_order(name: str) -> None:
    """What the model thinks of late is not lost; what is needed is still needed."""
    around, one, between = IN_ORDER[name]
    made = constraint_of(name, tools=(Tool(name="sky", parameters=FREE),))
    assert made is not None
    for order in ("abc", "cba", "bca", "b", "cb"):
        text = around.format(between.join(one.format(key) for key in order))
        assert accepted(made, text) == (text, True)
    for order in ("", "a", "ca", "bd", "bb"):
        text = around.format(between.join(one.format(key) for key in order))
        assert accepted(made, text)[1] is False


def test_inner_objects_come_in_any_order() -> None:
    """Those in lists too; what more a schema says about an object is held in its order."""
    rows: dict[str, Any] = {"type": "array", "items": {**FREE, "description": "a row"}}
    tool = Tool(name="sky", parameters={**FREE, "properties": {"b": FREE, "rows": rows}})
    made = constraint_of("Qwen-Qwen3-0.6B", tools=(tool,))
    assert made is not None
    around = '<tool_call>{"name": "sky", "arguments": @@}</tool_call>'
    one = '{"c": 1, "b": 2, "a": 3}'
    for text in (f'{{"rows": [{one}, {one}], "b": {one}}}', f'{{"b": {one}, "rows": []}}'):
        whole = around.replace("@@", text)
        assert accepted(made, whole) == (whole, True)
    for text in (f'{{"rows": [{{"c": 1}}], "b": {one}}}', '{"b": {"c": 1}}', '{"b": {"b": "x"}}'):
        assert accepted(made, around.replace("@@", text))[1] is False
    closed = {**FREE, "additionalProperties": {"type": "integer"}}
    made = constraint_of("Qwen-Qwen3-0.6B", tools=(Tool(name="sky", parameters=closed),))
    assert made is not None
    assert accepted(made, around.replace("@@", '{"a": 1, "b": 2, "z": 3}'))[1] is True


def test_a_thought_may_go_on_after_a_call() -> None:
    """It may have rehearsed it, so text is free again; where nobody thinks, calls or the end
    follow."""
    call = '{"name": "sky", "arguments": {}}</tool_call>'
    both = f"{call}\n<tool_call>{call}"
    made = constraint_of("Qwen-Qwen3-0.6B", required=False)
    assert made is not None
    assert made.repeats
    assert accepted(made, call) == (call, True)
    assert accepted(made, f"{call}\nHm") == (f"{call}\nHm", True)
    off = constraint_of("Qwen-Qwen3-0.6B", required=False, thinking=Thinking(is_on=False))
    assert off is not None
    assert accepted(off, both) == (both, True)
    assert accepted(off, f"{call}\nHm") == (f"{call}\n", False)


@for_each("name", templates.names())
@for_each("thinking", [Thinking(), Thinking(is_on=False)])
@for_each("required", [True, False])
def test_the_end_may_come_behind_white_space(name: str, thinking: Thinking, required: bool) -> None:
    """White space after a call promises no other one, in any dialect, for one call or several."""
    off = Thinking(is_on=False)
    one = constraint_of(name, tools=TOOLS[:1], parallel=False, thinking=off, required=required)
    if one is None:  # nothing says unmistakably where a call begins
        assert not required
        return
    for parallel in (True, False):
        made = constraint_of(name, parallel=parallel, thinking=thinking, required=required)
        assert made is not None
        for space in ("", " ", "\n", "\n\n", "\n \n"):
            text = written(one) + space
            assert accepted(made, text) == (text, True)


def test_bare_objects_are_not_held_in_auto() -> None:
    """Any object could be one; `required` holds them."""
    name = "meta-llama-Llama-3.1-8B-Instruct"
    assert constraint_of(name, required=False) is None
    assert constraint_of(name, required=True) is not None


def test_json_behind_thoughts() -> None:
    """What was asked for begins after the thought; a constraint of another kind stays."""
    body = schema_constraint({"type": "integer"}, "response_format")
    made = constraint_of("Qwen-Qwen3-0.6B", tools=(), required=False, body=body)
    assert made is not None
    assert accepted(made, "<think>1 or 2?</think>\n\n2") == ("<think>1 or 2?</think>\n\n2", True)
    assert accepted(made, "2") == ("2", True)
    assert accepted(made, "two")[0] == ""
    off = Thinking(is_on=False)
    made = constraint_of("Qwen-Qwen3-0.6B", tools=(), required=False, body=body, thinking=off)
    assert made == body
    inside = constraint_of(
        "Qwen3.5-4B", tools=(), required=False, body=body,
        prompt="<|im_start|>assistant\n<think>\n",
    )  # fmt: skip
    assert inside is not None
    assert inside.starts_after == ("</think>",)
    other = Constraint(kind="regex", text="a+")
    assert constraint_of("Qwen-Qwen3-0.6B", tools=(), required=False, body=other) == other


SCHEMAS: list[dict[str, Any]] = [
    {}, {"type": "object"}, {"type": "object", "properties": {}}, {"properties": {"a": True}},
    {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"$ref": "#/$defs/a"}}}}},
    {"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": ["string", "null"]}}},
    {"type": "object", "properties": {"a": {"anyOf": []}, "b": {"enum": []}, "c": {"type": "x"}}},
    {"type": "object", "properties": {"a b": {"const": "x\n\"y"}}, "required": ["a b"]},
    {"type": "object", "properties": [], "required": "a"},
]  # fmt: skip


@for_each("schema", SCHEMAS)
@for_each("name", ["Qwen3-Coder", "google-gemma-4-31B-it", "GLM-4.6", "deepseek-ai-DeepSeek-V3.2"])
def test_any_schema_makes_a_grammar(name: str, schema: dict[str, Any]) -> None:
    """Odd ones too: a tool must not fail a request."""

    def loosened(part: dict[str, Any], what: str) -> str:
        try:
            text = schema_text(part, what)
        except RequestError:
            text = ""
        grammar = llguidance.LLMatcher.grammar_from_json_schema(text or "{}")
        return '{"type": "object"}' if llguidance.LLMatcher(BYTES, grammar).is_error() else text

    made = constraint_of(name, tools=(Tool(name="sky", parameters=schema),), loosened=loosened)
    assert made is not None
    assert accepted(made, "x") == ("", False)


TEXT: dict[str, Any] = {
    "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"],
}  # fmt: skip
# Calls of `sky` whose only argument is bare text: (before it, after it, the end of a value).
BARE_TEXTS = {
    "Qwen3-Coder": (
        "<tool_call>\n<function=sky>\n<parameter=at>\n",
        "\n</parameter>\n</function>\n</tool_call>", "</parameter>",
    ),
    "ByteDance-Seed-OSS": (
        "<seed:tool_call>\n<function=sky>\n<parameter=at>",
        "</parameter>\n</function>\n</seed:tool_call>", "</parameter>",
    ),
    "MiniMax-M2": (
        '<minimax:tool_call>\n<invoke name="sky">\n<parameter name="at">',
        "</parameter>\n</invoke>\n</minimax:tool_call>", "</parameter>",
    ),
    "GLM-4.6": (
        "<tool_call>sky\n<arg_key>at</arg_key>\n<arg_value>",
        "</arg_value>\n</tool_call>", "</arg_value>",
    ),
    "deepseek-ai-DeepSeek-V3.2": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="sky">\n'
        '<｜DSML｜parameter name="at" string="true">',
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        "</｜DSML｜parameter>",
    ),
    "openbmb-MiniCPM5-1B": (
        '<function name="sky"><param name="at">', "</param></function>", "</param>",
    ),
    "MiniMax-M3": (
        ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="sky">]<]minimax[>[<at>',
        "]<]minimax[>[</at>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>", "]<]minimax[>[</at>",
    ),
    "Kimi-K3": (
        '<|open|>tools<|sep|><|open|>call tool="sky" index="1"<|sep|>'
        '<|open|>argument key="at" type="string"<|sep|>',
        "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
        "<|close|>argument<|sep|>",
    ),
    "muse-glimmer": (
        ' to=sky<|message|><atem:function_calls>\n<atem:invoke name="sky">\n'
        '<atem:parameter name="at">',
        "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>", "</atem:parameter>",
    ),
}  # fmt: skip


@for_each("name", BARE_TEXTS)
@for_each("value", ["a@b", "a@ b", "a@\n<b>c</b>", "@b", "a@</b>", "a@b@c", "x"])
def test_a_value_may_hold_the_end_of_values(name: str, value: str) -> None:
    """Where neither another value nor the call's end follows, it is text: written and read so."""
    before, after, end = BARE_TEXTS[name]
    value = value.replace("@", end)
    tools = (Tool(name="sky", parameters=TEXT),)
    made = constraint_of(name, tools=tools)
    assert made is not None
    text = f"{before}{value}{after}"
    assert accepted(made, text) == (text, True)
    arguments = "".join(
        event.text
        for event in read(format_of(name), [text], tools=tools)
        if isinstance(event, Arguments)
    )
    assert json.loads(arguments) == {"at": value}


@for_each("name", BARE_TEXTS)
def test_the_end_of_a_value_still_ends_it(name: str) -> None:
    """A name that no parameter has is not a part of the text before it."""
    before, _, end = BARE_TEXTS[name]
    made = constraint_of(name, tools=(Tool(name="sky", parameters=TEXT),))
    assert made is not None
    begin = "]<]minimax[>[<" if name == "MiniMax-M3" else "<"
    opening = before[before.rindex(begin, 0, before.rindex("at")) :]
    opening = "zz".join(opening.rsplit("at", 1))
    text = f"{before}x{end}{opening}"
    assert len(accepted(made, text)[0]) < len(text)


def test_a_value_in_a_section_of_its_own() -> None:
    """It may hold any text but its own end."""
    before, after, _ = BARE_TEXTS["openbmb-MiniCPM5-1B"]
    made = constraint_of("openbmb-MiniCPM5-1B", tools=(Tool(name="sky", parameters=TEXT),))
    assert made is not None
    text = f"{before}<![CDATA[a</param></function>b]]>{after}"
    assert accepted(made, text) == (text, True)
