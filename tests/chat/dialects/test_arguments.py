"""What arguments may hold, and what happens where they are damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chat.dialects.telling import calls, format_of, joined, read, told
from tests.support.cases import for_each
from tests.support.models import templates
from worker.chat.format import ChatFormat
from worker.chat.message import Tool
from worker.chat.reader import Arguments, CallBegun, CallEnded, Content
from worker.chat.thinking import Thinking

pytestmark = pytest.mark.skipif(not templates.names(), reason=templates.WHY_NOT)

# Each family's text around the name and the arguments of a call.
AROUND_JSON = {
    "Qwen-Qwen3-0.6B": '<tool_call>{"name": "sky", "arguments": @@}</tool_call>',
    "meta-llama-Llama-3.1-8B-Instruct": '{"name": "sky", "parameters": @@}',
    "mistralai-Mistral-Nemo-Instruct-2407": '[TOOL_CALLS][{"name": "sky", "arguments": @@}]',
    "Mistral-Small-3.2-24B-Instruct-2506": "[TOOL_CALLS]sky[CALL_ID]abcdefghi[ARGS]@@",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
    "function<｜tool▁sep｜>sky\n```json\n@@\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "meetkai-functionary-medium-v3.1": "<function=sky>@@</function>",
    "meetkai-functionary-medium-v3.2": ">>>sky\n@@",
    "openai-gpt-oss-120b": "<|channel|>commentary to=functions.sky<|message|>@@",
}
RICH = (
    '{"at": "R\\u00f6me \\"x\\" \\\\ </tool_call> [TOOL_CALLS] <|end|> {", "ö": "日本 😀",'
    ' "more": {"a": [1, -2.5e3, true, null, [], {}], "b": {"c": {}}} , "empty":""\n}'
)
DAMAGED = (
    '{"at": Rome}', '{"at": "Ro', '{"at": 01}', '{"at": "\\x"}', "{'at': 'Rome'}",
    '{"at": [1, 2}', '{"at" "Rome"}', '{"at": True}', '{"at": 1,}', '{"at": ' + "[" * 300 + "1",
)  # fmt: skip


@pytest.mark.parametrize(("name", "around"), AROUND_JSON.items())
def test_arguments_stay_as_they_are_written(name: str, around: str) -> None:
    """Escapes, white space, what looks like a marker, other scripts."""
    assert told(format_of(name), around.replace("@@", RICH)) == calls(("sky", RICH))


@for_each(("name", "around"), AROUND_JSON.items())
@for_each("damaged", DAMAGED)
def test_damaged_arguments_are_text(name: str, around: str, damaged: str) -> None:
    """No call ends that has no object; nothing of what was said is lost."""
    made, text = format_of(name), around.replace("@@", damaged)
    found = read(made, [text])
    assert found == read(made, text)
    assert not any(isinstance(event, CallEnded) for event in found)
    content = "".join(event.text for event in found if isinstance(event, Content))
    if name == "openai-gpt-oss-120b":  # what has a header is told without its marks
        assert content == (damaged if CallBegun(0, "", "sky") in found else f"to=sky {damaged}")
    else:
        assert content == text.removeprefix(">>>" if found[0] == Content(content[3:]) else "")


@pytest.mark.parametrize("odd", ['"{\\"at\\": \\"Rome\\"}"', "null", '"null"', '""'])
def test_arguments_that_are_a_text_of_json(odd: str) -> None:
    """Some models quote their arguments; none at all are an empty object."""
    text = AROUND_JSON["Qwen-Qwen3-0.6B"].replace("@@", odd)
    found = read(format_of("Qwen-Qwen3-0.6B"), [text])
    assert found == read(format_of("Qwen-Qwen3-0.6B"), text)
    if "Rome" in odd:
        assert found == calls(("sky", '{"at": "Rome"}'))
    elif odd in ("null", '""'):
        assert found == calls(("sky", "{}"))


def test_arguments_that_are_a_text_of_other_than_json() -> None:
    """What Python alone takes is no call; half a surrogate pair has become a character."""
    made = format_of("meta-llama-Llama-3.1-8B-Instruct")
    odd = r'"{\"at\": \"\ud800\"}"'
    for text in (
        f'{{"name": "sky", "arguments": {odd}}}',
        f'{{"arguments": {odd}, "name": "sky"}}',
    ):
        assert read(made, [text]) == calls(("sky", '{"at": "\ufffd"}'))
    nan = r'{"name": "sky", "arguments": "{\"at\": NaN}"}'
    assert read(made, [nan]) == [Content(nan)]


def test_fields_in_any_order() -> None:
    """Arguments before the name, other fields, a function in the call."""
    made = format_of("Qwen-Qwen3-0.6B")
    for body in (
        '{"arguments": {"at": 1}, "name": "sky"}',
        '{"id": "x", "type": "function", "name": "sky", "arguments": {"at": 1}, "more": [{}]}',
        '{"type": "function", "function": {"name": "sky", "arguments": {"at": 1}}}',
        ' { "name" : "sky" , "arguments" : {"at": 1} } ',
    ):
        text = f"<tool_call>{body}</tool_call>"
        assert told(made, text) == calls(("sky", '{"at": 1}'))


def test_line_ends_in_strings_become_escapes() -> None:
    """Models write them; JSON forbids them. Nothing else is repaired."""
    text = AROUND_JSON["Qwen-Qwen3-0.6B"].replace("@@", '{"at": "a\nb\tc"}')
    assert told(format_of("Qwen-Qwen3-0.6B"), text) == calls(("sky", '{"at": "a\\nb\\tc"}'))


def test_a_second_call_may_be_damaged() -> None:
    """The first one counts, the text of the second follows; then calls go on."""
    good = '<tool_call>{"name": "sky", "arguments": {}}</tool_call>'
    bad = '<tool_call>{"name": "sea", "arguments": {"at": }}</tool_call>'
    unknown = '<tool_call>{"name": "sun"}</tool_call>'
    found = told(format_of("Qwen-Qwen3-0.6B"), f"{good}\n{bad}\n{unknown}\n{good}")
    assert found == [
        *calls(("sky", "{}")),
        CallBegun(1, "", "sea"), Arguments(1, '{"at": '), Content(f"{bad}\n{unknown}"),
        *calls(("sky", "{}"), first=2),
    ]  # fmt: skip


XML = {
    "Qwen3-Coder": (
        "<tool_call>\n<function=sky>\n{}</function>\n</tool_call>",
        "<parameter={}>\n{}\n</parameter>\n",
    ),
    "MiniMax-M2": (
        '<minimax:tool_call>\n<invoke name="sky">\n{}</invoke>\n</minimax:tool_call>',
        '<parameter name="{}">{}</parameter>\n',
    ),
    "GLM-4.6": (
        "<tool_call>sky\n{}</tool_call>",
        "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n",
    ),
}
VALUES: list[tuple[str, str, Any]] = [
    ("at", "Rome", "Rome"),
    ("at", "12", "12"),
    ("at", "null", "null"),
    ("at", ' "a"\n\n\\b </x> <parameter=y>', ' "a"\n\n\\b </x> <parameter=y>'),
    ("days", "3", 3),
    ("days", "three", "three"),
    ("more", '{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
    ("more", "{'a': 1}", "{'a': 1}"),
    ("maybe", "null", None),
    ("maybe", "None", "None"),
    ("maybe", "none", "none"),
    ("maybe", "NULL", "NULL"),
    ("maybe", "True", "True"),
    ("days", "None", "None"),
    ("maybe", "12", "12"),
    ("other", "12", 12),
    ("other", "NaN", "NaN"),
    ("other", "日本 😀", "日本 😀"),
    ("other", "", ""),
]


@for_each("name", XML)
@for_each(("key", "text", "value"), VALUES)
def test_values_are_typed_by_the_schema(name: str, key: str, text: str, value: Any) -> None:
    """A string stays one, also through anyOf; what does not fit becomes one."""
    around, parameter = XML[name]
    whole = around.format(parameter.format(key, text) + parameter.format("z", "1"))
    begun, arguments, ended = told(format_of(name), whole)
    assert begun == CallBegun(0, "", "sky")
    assert ended == CallEnded(0)
    assert isinstance(arguments, Arguments)
    assert json.loads(arguments.text) == {key: value, "z": 1}


def test_values_of_python() -> None:
    """Become JSON."""
    made = format_of("LFM2-8B-A1B")
    text = (
        "<|tool_call_start|>[sky(at='it\\'s \"x\"\\n\\u00f6\\q', days=-3.5e2, "
        "more={'a': [1, (True, None)], \"b\": {}}, maybe=None,)]<|tool_call_end|>"
    )
    _, arguments, ended = told(made, text)
    assert ended == CallEnded(0)
    assert isinstance(arguments, Arguments)
    assert json.loads(arguments.text) == {
        "at": 'it\'s "x"\nö\\q', "days": -350, "more": {"a": [1, [True, None]], "b": {}},
        "maybe": None,
    }  # fmt: skip
    halves = r"<|tool_call_start|>[sky(at='\ud83d\ude00 \ud83d \ude00')]<|tool_call_end|>"
    assert told(made, halves) == calls(("sky", '{"at": "😀 \ufffd \ufffd"}'))
    for damaged in ("sky(at=Rome)", "sky(at='Rome", "sky('Rome')", "sun()"):
        found = read(made, [f"<|tool_call_start|>[{damaged}]<|tool_call_end|>"])
        assert not any(isinstance(event, CallEnded) for event in found)
        assert isinstance(found[-1], Content)


def arguments_of(name: str, text: str) -> dict[str, Any]:
    """Of the one call that the text is."""
    begun, arguments, ended = told(format_of(name), text)
    assert (begun, ended) == (CallBegun(0, "", "sky"), CallEnded(0))
    assert isinstance(arguments, Arguments)
    return json.loads(arguments.text)


@pytest.mark.parametrize("name", XML)
def test_arguments_in_any_order_and_again(name: str) -> None:
    """None is dropped; of two with one name the last one counts, as everywhere in JSON."""
    around, parameter = XML[name]
    pairs = (("more", "{}"), ("days", "1"), ("at", "Rome"), ("days", "2"), ("z", "x"))
    whole = around.format("".join(parameter.format(*pair) for pair in pairs))
    assert arguments_of(name, whole) == {"more": {}, "days": 2, "at": "Rome", "z": "x"}


def test_python_and_gemma_may_say_it_again() -> None:
    """As with tags."""
    text = "<|tool_call_start|>[sky(days=1, at='Rome', days=2)]<|tool_call_end|>"
    assert arguments_of("LFM2-8B-A1B", text) == {"days": 2, "at": "Rome"}
    text = '<|tool_call>call:sky{days:1,at:<|"|>Rome<|"|>,days:2}<tool_call|>'
    assert arguments_of("google-gemma-4-31B-it", text) == {"days": 2, "at": "Rome"}


def test_a_value_in_a_section_of_its_own() -> None:
    """XML's CDATA may hold what looks like an end, and is no part of the value."""
    value = '<a href="/x">R</param></function> ]] ></a>'
    text = (
        f'<function name="sky"><param name="at"><![CDATA[{value}]]></param>'
        '<param name="days"><![CDATA[3]]>\n</param></function>'
    )
    assert arguments_of("openbmb-MiniCPM5-1B", text) == {"at": value, "days": 3}


def test_values_that_are_typed_by_their_tags() -> None:
    """Kimi K3's; attributes are escaped, and all arguments may be one JSON object."""
    call = '<|open|>call tool="sky" index="1"<|sep|>{}<|close|>call<|sep|>'
    pairs = (
        ("at", "string", " 12 <x>\n"), ("maybe", "null", "null"), ("other", "string", "3"),
        ("days", "number", "3"), ("more", "object", '{"a": [1]}'),
        ("a &quot;b&amp;", "boolean", "true"),
    )  # fmt: skip
    values = "".join(
        f'<|open|>argument key="{key}" type="{kind}"<|sep|>{text}<|close|>argument<|sep|>'
        for key, kind, text in pairs
    )
    assert arguments_of("Kimi-K3", call.format(values)) == {
        "at": " 12 <x>\n", "maybe": None, "other": "3", "days": 3, "more": {"a": [1]},
        'a "b&': True,
    }  # fmt: skip
    json_block = '<|open|>json type="object"<|sep|>{"at": "Rome"}<|close|>json<|sep|>'
    assert arguments_of("Kimi-K3", call.format(json_block)) == {"at": "Rome"}


NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "names": {"type": "array", "items": {"type": "string"}},
        "rows": {
            "type": "array",
            "items": {"type": "object", "properties": {"id": {"type": "string"}}},
        },
        "either": {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"a": {}}}]},
        "text": {"type": "string"},
        "empty": {"type": "array"},
    },
}


def test_tags_in_each_other() -> None:
    """MiniMax M3's lists and objects; a text keeps what looks like a tag."""
    mark = "]<]minimax[>["
    body = (
        "<names><item>1</item><item>b</item></names><rows><item><id>7</id><n>1.5</n></item></rows>"
        "<either><a>true</a></either><text>a<b>c</b></text><empty></empty><free><x>1</x></free>"
    )
    text = f'<tool_call>\n<invoke name="sky">{body}</invoke>\n</tool_call>'.replace("<", f"{mark}<")
    tools = (Tool(name="sky", parameters=NESTED),)
    begun, arguments, ended = told(format_of("MiniMax-M3"), text, tools=tools)
    assert (begun, ended) == (CallBegun(0, "", "sky"), CallEnded(0))
    assert isinstance(arguments, Arguments)
    assert json.loads(arguments.text) == {
        "names": ["1", "b"], "rows": [{"id": "7", "n": 1.5}], "either": {"a": True},
        "text": f"a{mark}<b>c{mark}</b>", "empty": [], "free": {"x": 1},
    }  # fmt: skip


def test_strings_stream() -> None:
    """Each piece of a string is told when it comes."""
    reader = format_of("Qwen3-Coder").reader(
        (Tool(name="sky", parameters={"properties": {"at": {"type": "string"}}}),),
        prompt="", thinking=Thinking(),
    )  # fmt: skip
    reader.feed("<tool_call><function=sky><parameter=at>\n")
    assert reader.feed("Rome, ") == [Arguments(0, "Rome, ")]
    assert reader.feed('"old"') == [Arguments(0, '\\"old\\"')]


TEXTS = st.lists(
    st.sampled_from(
        ["<tool_call>", "</tool_call>", '{"name": "sky"', ', "arguments": ', '{"at": "x"}', "}",
         "{", "<think>", "</think>", "\n", " ", "a", '"', "[TOOL_CALLS]", "sky", "[ARGS]",
         "<|channel|>", "analysis", "final", "<|message|>", "<|end|>", "<|start|>assistant",
         "to=functions.sky",
         "<function=sky>", "<parameter=at>", "</parameter>", "</function>", ">>>", "all\n", "é",
         "<|open|>", "<|close|>", "<|sep|>", 'call tool="sky"', "tools", "think", "response",
         "]<]minimax[>[", '<invoke name="sky">', "<at>", "</at>", "</invoke>", "<mm:think>",
         " to=self", " to=sky", "<|eom|>", '<atem:invoke name="sky">', "<|tools_prefix|>",
         "<|constrain|>", "<|channel>", "<channel|>",
         "<|tool_call>", "call:sky{", 'at:<|"|>', '<|"|>', "<tool_call|>"]
    ),
    max_size=12,
).map("".join)  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["Qwen-Qwen3-0.6B", "Qwen3-Coder", "Mistral-Small-3.2-24B-Instruct-2506", "openai-gpt-oss-120b",
     "google-gemma-4-31B-it", "meta-llama-Llama-3.1-8B-Instruct",
     "meetkai-functionary-medium-v3.2", "Kimi-K3", "MiniMax-M3", "muse-glimmer",
     "Apertus-8B-Instruct"],
)  # fmt: skip
@settings(max_examples=50, deadline=None)
@given(text=TEXTS, data=st.data())
def test_any_split_gives_the_same_events(name: str, text: str, data: st.DataObject) -> None:
    """And calls that end hold objects, one after the other."""
    made: ChatFormat = format_of(name)
    whole = read(made, [text])
    assert read(made, text) == whole
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=4)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert read(made, pieces) == whole
    assert joined(whole) == whole
    for place, event in enumerate(whole):
        if isinstance(event, CallEnded):
            arguments = whole[place - 1]
            assert isinstance(arguments, Arguments)
            assert isinstance(json.loads(arguments.text), dict)
