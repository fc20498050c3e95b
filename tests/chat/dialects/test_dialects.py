"""Each family's way to call, read from texts that are cut at every place."""

from __future__ import annotations

import pytest

from tests.chat.dialects.telling import TOOLS, calls, format_of, read, told
from tests.support.cases import for_each
from tests.support.models import templates
from worker.chat.dialects.dialect import PLAIN, dialect_of
from worker.chat.dialects.sample import CallSample
from worker.chat.dialects.wrapped import WrappedCalls
from worker.chat.reader import CallEnded, ChatEvent, Content, Thought
from worker.chat.thinking import Thinking

pytestmark = pytest.mark.skipif(not templates.names(), reason=templates.WHY_NOT)

# What each template's calls are called. Others know none: there, calls are asked for in words.
NAMES = {
    "Apertus-8B-Instruct": "json by name after <|tools_prefix|>",
    "Apriel-1.6-15b-Thinker-fixed": "json after <tool_calls>",
    "ByteDance-Seed-OSS": "tags after <seed:tool_call>",
    "CohereForAI-c4ai-command-r-plus-tool_use": "json after Action: ```json",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "json after <|START_ACTION|>",
    "GLM-4.6": "tags after <tool_call>",
    "GLM-4.7-Flash": "tags after <tool_call>",
    "GigaChat3-10B-A1.8B": "json after <|message_sep|> function call<|role_sep|>",
    "GigaChat3.1-10B-A1.8B": "json after <|function_call|>",
    "Kimi-K3": "xtml",
    "LFM2-8B-A1B": "python",
    "LFM2.5-8B-A1B": "python",
    "LFM2.5-Instruct": "python",
    "MiniMax-M1": "json after <tool_calls>",
    "MiniMax-M2": "tags after <minimax:tool_call>",
    "MiniMax-M3": "tags in each other after ]<]minimax[>[<tool_call>",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral, names",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "tags after <tool_call>",
    "NVIDIA-Nemotron-Nano-v2": "json after <TOOLCALL>",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "json after <tool_call>",
    "Qwen-QwQ-32B": "json after <tool_call>",
    "Qwen-Qwen2.5-7B-Instruct": "json after <tool_call>",
    "Qwen-Qwen3-0.6B": "json after <tool_call>",
    "Qwen3-Coder": "tags after <tool_call>",
    "Qwen3.5-4B": "tags after <tool_call>",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "name and json after <｜tool▁call▁begin｜>",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "name and json after <｜tool▁call▁begin｜>",
    "deepseek-ai-DeepSeek-V3.1": "name and json after <｜tool▁call▁begin｜>",
    "deepseek-ai-DeepSeek-V3.2": "tags after <｜DSML｜function_calls>",
    "google-gemma-2-2b-it": "json after <tool_call>",
    "google-gemma-4-31B-it": "gemma",
    "ibm-granite-granite-3.3-2B-Instruct": "json after <|tool_call|>",
    "ibm-granite-granite-4.0": "json after <tool_call>",
    "meetkai-functionary-medium-v3.1": "name and json after <function=",
    "meetkai-functionary-medium-v3.2": "functionary",
    "meta-llama-Llama-3.1-8B-Instruct": "json after {",
    "meta-llama-Llama-3.2-3B-Instruct": "json after {",
    "microsoft-Phi-3.5-mini-instruct": "json after <tool_call>",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral, names",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral, list",
    "moonshotai-Kimi-K2": "name and json after <|tool_call_begin|>",
    "muse-glimmer": "muse",
    "openai-gpt-oss-120b": "harmony",
    "openbmb-MiniCPM5-1B": 'tags after <function name="',
    "tencent-Hy3": "tags after <tool_calls:opensource>",
    "unsloth-mistral-Devstral-Small-2507": "mistral, names",
    "upstage-Solar-Open-100B": "name and json after <|tool_call:begin|>",
}


@for_each(("name", "dialect"), NAMES.items())
def test_dialects_are_found(name: str, dialect: str) -> None:
    """By the template alone."""
    assert format_of(name).dialect.marks.name == dialect


@for_each("name", templates.names())
def test_every_template_has_one(name: str) -> None:
    """Or, where it knows no calls, the one that is asked for in words."""
    assert format_of(name).dialect.marks.name


# Two calls in the words of each family: one with arguments, one without; and text before them.
ROME = '{"at": "Rome", "days": 3}'
BOTH = {
    "Qwen-Qwen3-0.6B": 'T\n<tool_call>\n{"name": "sky", "arguments": {"at": "Rome", "days": 3}}\n'
    '</tool_call>\n<tool_call>\n{"name": "sea", "arguments": {}}\n</tool_call>',
    "ibm-granite-granite-4.0": 'T<tool_call>{"name":"sky","arguments":{"at": "Rome", "days": 3}}'
    '</tool_call> <tool_call>{"name":"sea"}</tool_call>',
    "ibm-granite-granite-3.3-2B-Instruct": 'T<|tool_call|>[{"name": "sky", "arguments": '
    '{"at": "Rome", "days": 3}}, {"name": "sea", "arguments": {}}]',
    "NVIDIA-Nemotron-Nano-v2": 'T\n<TOOLCALL>[{"name": "sky", "arguments": {"at": "Rome", '
    '"days": 3}}, {"name": "sea", "arguments": {}}]</TOOLCALL>',
    "MiniMax-M1": 'T<tool_calls>\n{"name": "sky", "arguments": {"at": "Rome", "days": 3}}\n'
    '{"name": "sea", "arguments": {}}\n</tool_calls>',
    "CohereForAI-c4ai-command-r-plus-tool_use": 'T\nAction:\n```json\n[\n    {\n        '
    '"tool_name": "sky",\n        "parameters": {"at": "Rome", "days": 3}\n    },\n    {\n        '
    '"tool_name": "sea",\n        "parameters": {}\n    }\n]```',
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": 'T<|START_ACTION|>[\n    {"tool_call_id": '
    '"0", "tool_name": "sky", "parameters": {"at": "Rome", "days": 3}},\n    {"tool_call_id": "1",'
    ' "tool_name": "sea", "parameters": {}}\n]<|END_ACTION|>',
    "meta-llama-Llama-3.1-8B-Instruct": 'T\n{"name": "sky", "parameters": {"at": "Rome", "days": '
    '3}}; {"type": "function", "name": "sea", "parameters": {}}',
    "meta-llama-Llama-3.2-3B-Instruct": 'T<|python_tag|>{"name": "sky", "parameters": '
    '{"at": "Rome", "days": 3}}<|python_tag|>{"name": "sea", "parameters": null}',
    "mistralai-Mistral-Nemo-Instruct-2407": 'T[TOOL_CALLS][{"name": "sky", "arguments": '
    '{"at": "Rome", "days": 3}, "id": "abcdefghi"}, {"name": "sea", "arguments": {}}]',
    "Mistral-Small-3.2-24B-Instruct-2506": 'T[TOOL_CALLS]sky[CALL_ID]abcdefghi[ARGS]'
    '{"at": "Rome", "days": 3}[TOOL_CALLS]sea[CALL_ID]abcdefghj[ARGS]{}',
    "unsloth-mistral-Devstral-Small-2507": 'T[TOOL_CALLS]sky{"at": "Rome", "days": 3}[TOOL_CALLS]'
    "sea[ARGS]{}",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "T<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
    'function<｜tool▁sep｜>sky\n```json\n{"at": "Rome", "days": 3}\n```<｜tool▁call▁end｜>\n'
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>sea\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek-ai-DeepSeek-V3.1": "T<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>sky<｜tool▁sep｜>"
    '{"at": "Rome", "days": 3}<｜tool▁call▁end｜><｜tool▁call▁begin｜>sea<｜tool▁sep｜>{}'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek-ai-DeepSeek-V3.2": 'T\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="sky">\n'
    '<｜DSML｜parameter name="at" string="true">Rome</｜DSML｜parameter>\n<｜DSML｜parameter '
    'name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    '<｜DSML｜invoke name="sea">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "meetkai-functionary-medium-v3.1": 'T<function=sky>{"at": "Rome", "days": 3}</function>'
    "<function=sea>{}</function>",
    "meetkai-functionary-medium-v3.2": '>>>all\nT>>>sky\n{"at": "Rome", "days": 3}>>>sea\n{}',
    "moonshotai-Kimi-K2": "T<|tool_calls_section_begin|><|tool_call_begin|>functions.sky:0"
    '<|tool_call_argument_begin|>{"at": "Rome", "days": 3}<|tool_call_end|><|tool_call_begin|>'
    "functions.sea:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
    "upstage-Solar-Open-100B": "T<|tool_calls|><|tool_call:begin|>abc<|tool_call:name|>sky"
    '<|tool_call:args|>{"at": "Rome", "days": 3}<|tool_call:end|><|tool_call:begin|>d'
    "<|tool_call:name|>sea<|tool_call:args|>{}<|tool_call:end|><|calls|>",
    "Qwen3-Coder": "T\n\n<tool_call>\n<function=sky>\n<parameter=at>\nRome\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=sea>\n"
    "</function>\n</tool_call>",
    "Qwen3.5-4B": "T<function=sky><parameter=at>Rome</parameter><parameter=days>3</parameter>"
    "</function></tool_call><tool_call><function=sea></function></tool_call>",
    "ByteDance-Seed-OSS": "T\n<seed:tool_call>\n<function=sky>\n<parameter=at>Rome</parameter>\n"
    "<parameter=days>3</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n"
    "<function=sea>\n</function>\n</seed:tool_call>",
    "MiniMax-M2": 'T\n<minimax:tool_call>\n<invoke name="sky">\n<parameter name="at">Rome'
    '</parameter>\n<parameter name="days">3</parameter>\n</invoke>\n<invoke name="sea">\n'
    "</invoke>\n</minimax:tool_call>",
    "openbmb-MiniCPM5-1B": 'T\n<function name="sky"><param name="at">Rome</param><param '
    'name="days">3</param></function>\n<function name="sea"></function>',
    "GLM-4.6": "T\n<tool_call>sky\n<arg_key>at</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>"
    "days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>sea\n</tool_call>",
    "GLM-4.7-Flash": "T<tool_call>sky<arg_key>at</arg_key><arg_value>Rome</arg_value><arg_key>"
    "days</arg_key><arg_value>3</arg_value></tool_call><tool_call>sea</tool_call>",
    "tencent-Hy3": "T<tool_calls:opensource>\n<tool_call:opensource>sky<tool_sep:opensource>\n"
    "<arg_key:opensource>at</arg_key:opensource>\n<arg_value:opensource>Rome"
    "</arg_value:opensource>\n<arg_key:opensource>days</arg_key:opensource>\n"
    "<arg_value:opensource>3</arg_value:opensource>\n</tool_call:opensource>\n"
    "<tool_call:opensource>sea<tool_sep:opensource>\n</tool_call:opensource>\n"
    "</tool_calls:opensource>",
    "LFM2-8B-A1B": """T<|tool_call_start|>[sky(at="Rome", days=3), sea()]<|tool_call_end|>""",
    "LFM2.5-Instruct": 'T<|tool_call_start|>[sky(at="Rome", days=3), sea()]<|tool_call_end|>',
    "Apertus-8B-Instruct": 'T<|tools_prefix|>[{"sky": {"at": "Rome", "days": 3}}, {"sea": {}}]'
    "<|tools_suffix|>",
    "GigaChat3-10B-A1.8B": 'T<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "sky", '
    '"arguments": {"at": "Rome", "days": 3}}<|message_sep|>\n\nfunction call<|role_sep|>\n'
    '{"name": "sea", "arguments": {}}',
    "GigaChat3.1-10B-A1.8B": 'T<|function_call|>{"name": "sky", "arguments": {"at": "Rome", '
    '"days": 3}}<|function_call|>{"name": "sea", "arguments": {}}',
    "Kimi-K3": "<|open|>response<|sep|>T<|close|>response<|sep|><|open|>tools<|sep|><|open|>call "
    'tool="sky" index="1"<|sep|><|open|>argument key="at" type="string"<|sep|>Rome<|close|>'
    'argument<|sep|><|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>'
    '<|close|>call<|sep|><|open|>call tool="sea" index="2"<|sep|><|close|>call<|sep|><|close|>'
    "tools<|sep|>",
    "MiniMax-M3": 'T]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="sky">]<]minimax[>[<at>Rome'
    "]<]minimax[>[</at>]<]minimax[>[<days>3]<]minimax[>[</days>]<]minimax[>[</invoke>\n"
    ']<]minimax[>[<invoke name="sea">]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>',
    "muse-glimmer": " to=user<|message|>T<|eom|><|start|>assistant to=sky<|message|>"
    '<atem:function_calls>\n<atem:invoke name="sky">\n<atem:parameter name="at">Rome'
    '</atem:parameter>\n<atem:parameter name="days">3</atem:parameter>\n</atem:invoke>\n'
    "</atem:function_calls><|eom|><|start|>assistant to=sea<|message|><atem:function_calls>\n"
    '<atem:invoke name="sea">\n</atem:invoke>\n</atem:function_calls><|eot|>',
    "google-gemma-4-31B-it": 'T<|tool_call>call:sky{at:<|"|>Rome<|"|>,days:3}<tool_call|>'
    "<|tool_call>call:sea{}<tool_call|>",
    "openai-gpt-oss-120b": "<|channel|>commentary<|message|>T<|end|><|start|>assistant"
    '<|channel|>commentary to=functions.sky <|constrain|>json<|message|>{"at": "Rome", "days": 3}'
    "<|call|><|start|>assistant to=functions.sea<|channel|>commentary json<|message|>{}",
    "google-gemma-2-2b-it": 'T <tool_call>{"name": "sky", "arguments": {"at": "Rome", "days": 3}}'
    '</tool_call><tool_call>{"name": "sea", "arguments": {}}</tool_call>',
}  # fmt: skip


# Whose answers have headers or tags around all parts, which never are content.
HEADED = ("Kimi-K3", "meetkai-functionary-medium-v3.2", "muse-glimmer", "openai-gpt-oss-120b")


@for_each(("name", "text"), BOTH.items())
def test_two_calls(name: str, text: str) -> None:
    """Arguments come as they were written; a call without any has an empty object."""
    assert told(format_of(name), text) == [Content("T"), *calls(("sky", ROME), ("sea", "{}"))]


@for_each(("name", "text"), BOTH.items())
def test_without_parallel_calls_the_first_is_told(name: str, text: str) -> None:
    """And what follows it is no content."""
    found = read(format_of(name), text, parallel=False)
    assert found == [Content("T"), *calls(("sky", ROME))]


@for_each(("name", "text"), BOTH.items())
def test_without_tools_calls_are_text(name: str, text: str) -> None:
    """Nothing is taken apart, but for the names of channels."""
    found = read(format_of(name), text, tools=())
    assert [type(event) for event in found] == [Content]
    if name not in HEADED:
        assert found == [Content(text)]


@for_each(("name", "text"), BOTH.items())
def test_unknown_names_are_text(name: str, text: str) -> None:
    """Where no tool has the name, nothing is a call, and nothing is lost."""
    found = read(format_of(name), text.replace("sky", "sun").replace("sea", "sew"))
    assert [type(event) for event in found] == [Content]
    assert isinstance(found[0], Content)
    assert found[0].text.count("sun") == text.count("sky")
    assert found[0].text.count("sew") == text.count("sea")


@for_each(("name", "text"), BOTH.items())
def test_calls_that_are_cut_off(name: str, text: str) -> None:
    """Wherever an answer ends: whole calls are told as such, the text of another is content. A half
    of what closes calls is none."""
    made, both = format_of(name), calls(("sky", ROME), ("sea", "{}"))
    text = text.removesuffix("<|eot|>")  # one token, which comes whole
    for place in range(1, len(text)):
        found = read(made, [text[:place]])
        num_ended = sum(isinstance(event, CallEnded) for event in found)
        ended = [event for event in found if is_of_call(event, range(num_ended))]
        assert ended == both[: len(ended)], text[:place]
        if any(is_of_call(event, range(num_ended, 3)) for event in found):
            assert isinstance(found[-1], Content), text[:place]
            assert text[:place].endswith(found[-1].text), text[:place]
        elif num_ended == 2:
            assert found == [Content("T"), *both], text[:place]


def is_of_call(event: ChatEvent, indices: range) -> bool:
    """Whether the event is about one of these calls."""
    return not isinstance(event, Content | Thought) and event.index in indices


def test_a_word_may_open_a_list() -> None:
    """Firefunction's, whose template wants a variable of its own."""
    shown = ' functools[{"name": "zqtool", "arguments": {"zqkey": "zqvalue"}}]'
    dialect = dialect_of(CallSample(shown, "", ""))
    assert isinstance(dialect, WrappedCalls)
    assert (dialect.open, dialect.close, dialect.is_list) == ("functools", "", True)


def test_the_plain_one_is_for_who_knows_none() -> None:
    """A template without calls gets it."""
    assert format_of("google-gemma-2-2b-it").dialect == PLAIN


@pytest.mark.parametrize(
    ("name", "around", "answer"),
    [
        ("Qwen-Qwen3-0.6B", ("<think>", "</think>"), "\n\n<tool_call>\n{"),
        ("Qwen-Qwen3-0.6B", ("<think>", "</think>"), "\n\nYes."),
        ("openai-gpt-oss-120b", ("<|channel|>analysis<|message|>", "<|end|>"),
         "<|start|>assistant<|channel|>commentary to=functions.sky"),
    ],
)  # fmt: skip
def test_where_a_thought_is(name: str, around: tuple[str, str], answer: str) -> None:
    """From its begin to its end, not to the next thing that is told; nowhere in the content."""
    opening, closing = around
    made = format_of(name)
    for inline in (False, True):
        thinking = Thinking(inline=inline)
        reader = made.reader(TOOLS, prompt="", thinking=thinking, parallel=True)
        places: list[bool] = []
        for character in f"{opening}Rain?{closing}{answer}":
            reader.feed(character)
            places.append(reader.is_thinking)
        inside = 0 if inline else len("Rain?" + closing)
        assert places == [
            *([False] * (len(opening) - 1)), *([True] * inside),
            *([False] * (len(places) - len(opening) + 1 - inside)),
        ]  # fmt: skip
