"""Answers that are not quite what their family was taught: no mark of a form is ever content."""

from __future__ import annotations

import re

import pytest

from tests.chat.dialects.telling import calls, format_of, read, told
from tests.support.cases import for_each
from tests.support.models import templates
from worker.chat.reader import ChatEvent, Content, Thought
from worker.chat.thinking import Thinking

pytestmark = pytest.mark.skipif(not templates.names(), reason=templates.WHY_NOT)

ROME = '{"at": "Rome"}'
GEMMA: list[tuple[str, list[ChatEvent]]] = [
    ("<|channel>thought\nRain?\n<channel|>Sun.", [Thought("Rain?"), Content("Sun.")]),
    ("<|channel>thought<channel|>Sun.", [Content("Sun.")]),
    ("<|channel>thought\n<channel|>Sun.<channel|>", [Content("Sun.")]),
    ("Sun.<|channel>thought\n<channel|>", [Content("Sun.")]),
    ("Sun<|channel>thought\nRain?<channel|>.", [Content("Sun"), Thought("Rain?"), Content(".")]),
    ("<|channel><|channel>thought\nRain?<channel|>Sun.", [Thought("Rain?"), Content("Sun.")]),
    ("Sun.<|channel>thought\n<channel|><channel|>", [Content("Sun.")]),
    (
        "<|channel>thought\nRain?<channel|><channel|><|tool_call>call:sky{}<tool_call|><channel|>",
        [Thought("Rain?"), *calls(("sky", "{}"))],
    ),
]


@pytest.mark.parametrize(("text", "events"), GEMMA)
def test_gemmas_channels_never_are_content(text: str, events: list[ChatEvent]) -> None:
    """Opened twice, closed twice, empty, or in the midst of an answer."""
    assert told(format_of("google-gemma-4-31B-it"), text) == events


HARMONY: list[tuple[str, list[ChatEvent]]] = [
    # A recipient that is no tool: nobody's message is content or thought, by its channel.
    ("<|channel|>commentary to=assistant<|channel|>analysis<|message|>Rain?", [Thought("Rain?")]),
    ("<|channel|>commentary to=user<|message|>Sun.", [Content("Sun.")]),
    ("<|start|>assistant to=sun<|channel|>commentary<|message|>x=1", [Content("to=sun x=1")]),
    # Headers that do not end.
    ("<|channel|>analysis Rain?<|end|>", [Thought("Rain?")]),
    ("<|channel|>final", []),
    ("<|channel|>final Sun.", [Content("Sun.")]),
    (f"<|channel|>final {'Sun. ' * 200}", [Content("Sun. " * 200)]),
    (f"<|channel|>commentary to=functions.sky {ROME}<|call|>", calls(("sky", ROME))),
    # Marks where none belong.
    ("Sun.<|message|> And rain.<|end|>", [Content("Sun. And rain.")]),
    ("<|end|><|channel|>final<|message|>Sun.", [Content("Sun.")]),
    ("Sun.<|end|><|start|>assistant<|channel|>final<|message|>Rain.", [Content("Sun.Rain.")]),
    ("Sun.<|constrain|>json<|message|>Rain.", [Content("Sun.Rain.")]),
    ("<|channel|>final<|message|>Sun.<|end|><|constrain|> Rain.", [Content("Sun.Rain.")]),
    # A channel's name without its mark.
    ("<|channel|>final<|message|>Sun.<|end|>commentary<|message|>Rain.", [Content("Sun.Rain.")]),
    ("<|channel|>final<|message|>Sun.commentary<|message|>Rain.", [Content("Sun.Rain.")]),
    ("Sun.<|message|>commentary<|message|>Rain.", [Content("Sun.Rain.")]),
    ("Sun.<|constrain|>commentary<|message|>Rain.", [Content("Sun.Rain.")]),
    (
        "<|channel|>final<|message|>Sun.analysis<|message|>Rain?",
        [Content("Sun."), Thought("Rain?")],
    ),
    ("Sun: commentary, final.", [Content("Sun: commentary, final.")]),
    (
        "<|channel|>analysis<|message|>Rain?<|end|>assistant<|channel|>final<|message|>Sun.",
        [Thought("Rain?"), Content("Sun.")],
    ),
    ("<|channel|>final<|message|>Sun.<|end|>assistant<|message|>!", [Content("Sun.!")]),
]


@pytest.mark.parametrize(("text", "events"), HARMONY)
def test_headers_never_are_content(text: str, events: list[ChatEvent]) -> None:
    """Whatever they say, and whether or not they end."""
    made = format_of("openai-gpt-oss-120b")
    assert read(made, [text]) == events
    assert read(made, text) == events


@pytest.mark.parametrize(
    "header",
    ["<|start|>assistant<|channel|>commentary t", "<|channel|>final <|constrain|>json"],
)
def test_half_a_header_is_no_content(header: str) -> None:
    """An answer may stop between any two tokens of the next message's header."""
    marks = re.split(r"(<\|\w+\|>)", f"<|end|>{header}")
    tokens = [token for part in marks for token in ([part] if "|" in part else part)]
    for size in range(1, len(tokens) + 1):
        answer = ["<|channel|>final<|message|>Sun.", *tokens[:size]]
        assert read(format_of("openai-gpt-oss-120b"), answer) == [Content("Sun.")]


def test_an_inline_thought_keeps_its_header_and_its_end() -> None:
    """So that a client can tell where it ends."""
    thought, answer = "<|channel|>analysis<|message|>Rain?<|end|>", "<|start|>assistant<|channel|>"
    found = told(
        format_of("openai-gpt-oss-120b"),
        f"{thought}{answer}final<|message|>Sun.",
        thinking=Thinking(inline=True),
    )
    assert found == [Content(f"{thought}Sun.")]


@pytest.mark.parametrize(
    "text",
    [
        f">>>sky\n{ROME}", f">>> sky\n{ROME}", f">>>sky \n\n {ROME}", f">>>\nsky\n{ROME}",
        f">>>sky {ROME}", f">>>sky{ROME}",
    ],
)  # fmt: skip
def test_white_space_after_functionarys_mark(text: str) -> None:
    """And between the name and the arguments, or none."""
    assert told(format_of("meetkai-functionary-medium-v3.2"), text) == calls(("sky", ROME))


@pytest.mark.parametrize("mark", [">>>all\n", ">>> all\n", ">>>all ", ">>>\nall\n"])
def test_white_space_before_functionarys_user(mark: str) -> None:
    """With tools and without; another word after the mark is a text."""
    made = format_of("meetkai-functionary-medium-v3.2")
    for tools in ({}, {"tools": ()}):
        assert told(made, f"{mark}Sun.", **tools) == [Content("Sun.")]
        assert told(made, ">>> allow(1)", **tools) == [Content(">>> allow(1)")]


SECOND = '{"name": "sea", "arguments": {}}'


@for_each("between", ["", " ", "\n", "\n\n", "\n \n\t"])
@for_each("inside", ["", " ", "\n", "\n\n  "])
def test_white_space_around_hermes_marks(between: str, inside: str) -> None:
    """Between calls, and between a mark and its object: none of it is content."""
    first = f'<tool_call>{inside}{{"name": "sky", "arguments": {ROME}}}{inside}</tool_call>'
    text = f"{first}{between}<tool_call>{inside}{SECOND}{inside}</tool_call>"
    made = format_of("Qwen-Qwen3-0.6B")
    assert read(made, [text]) == read(made, text) == calls(("sky", ROME), ("sea", "{}"))
    edge = f"</tool_call>{between}<tool_call>{inside}{{"  # one token may hold all of it
    before, after = text.split(edge)
    assert read(made, [before, edge, after]) == calls(("sky", ROME), ("sea", "{}"))


def test_muses_calls_stand_in_messages_to_tools() -> None:
    """What an answer or a thought quotes is no call; an open message goes on."""
    made = format_of("muse-glimmer")
    call = (
        '<atem:function_calls>\n<atem:invoke name="sky">\n<atem:parameter name="at">Rome'
        "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>"
    )
    assert told(made, f" to=user<|message|>So: {call}<|eot|>") == [Content(f"So: {call}")]
    text = f" to=self<|message|>So: {call}<|eom|><|start|>assistant to=sky<|message|>{call}<|eot|>"
    assert told(made, text) == [Thought(f"So: {call}"), *calls(("sky", ROME))]
    begun = "<|start|>user<|message|>Rain?<|eot|><|start|>assistant to=self<|message|>Hm"
    assert told(made, ", no.<|eom|><|start|>assistant to=user<|message|>No.", prompt=begun) == [
        Thought(", no."), Content("No."),
    ]  # fmt: skip


def test_an_answer_that_leaves_out_the_end_of_its_thought() -> None:
    """Kimi K3's response begins, so the thought has ended; inline, an empty one leaves no tag."""
    made = format_of("Kimi-K3")
    prompt = '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>'
    end = "<|close|>response<|sep|><|close|>message<|sep|>"
    text = f"Rain?<|open|>response<|sep|>Sun.{end}"
    assert told(made, text, prompt=prompt) == [Thought("Rain?"), Content("Sun.")]
    inline = Thinking(inline=True)
    text = f"<|open|>response<|sep|>Sun.{end}"
    assert told(made, text, prompt=prompt, thinking=inline) == [Content("Sun.")]


def test_a_message_opened_in_an_answer() -> None:
    """Solar thinks in a message of its own; the next one's opening is no content."""
    made = format_of("upstage-Solar-Open-100B")
    text = "<|think|>Rain?<|end|><|begin|>assistant Sun."
    assert told(made, text) == [Thought("Rain?"), Content("Sun.")]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("mistralai-Ministral-3-14B-Reasoning-2512", f"[TOOL_CALLS]sky[ARGS]{ROME}"),
        ("LFM2.5-8B-A1B", "<|tool_call_start|>[sky(at='Rome')]<|tool_call_end|>"),
        ("Reka-Edge", f'<tool_call>\n{{"name": "sky", "arguments": {ROME}}}\n</tool_call>'),
    ],
)
def test_calls_in_a_thought(name: str, call: str) -> None:
    """A thought that ends has rehearsed them; one that does not has ended with them."""
    made = format_of(name)
    tags = made.thoughts.tags
    closed = f"{tags.open}I may {call} or not.{tags.close}{call}"
    assert told(made, closed) == [Thought(f"I may {call} or not."), *calls(("sky", ROME))]
    assert told(made, f"{tags.open}I do: {call}") == [Thought("I do:"), *calls(("sky", ROME))]


@for_each("name", templates.names())
def test_no_half_tag_is_shown(name: str) -> None:
    """Where an answer stops inside what opens a call, or around a thought, only its text counts."""
    made = format_of(name)
    for opened in made.dialect.marks.opens:
        if opened[0].isalnum() or len(opened) == 1:
            continue
        for size in range(1 if opened[0] == "<" else 2, len(opened)):
            for pieces in ([f"Sun.{opened[:size]}"], ["Sun.", *opened[:size]]):
                assert read(made, pieces) == [Content("Sun.")], opened[:size]
        assert read(made, ["Sun.", opened[0], " 3"]) == [Content(f"Sun.{opened[0]} 3")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Qwen-Qwen3-0.6B", "Vitamin <A>"),
        ("MiniMax-M3", "See [1]"),
        ("Mistral-Small-3.2-24B-Instruct-2506", "x = ["),
        ("CohereForAI-c4ai-command-r-plus-tool_use", "Vitamin A"),
    ],
)
def test_what_just_begins_as_a_tag_stays(name: str, text: str) -> None:
    """A word, and a bracket alone, end a text as they like."""
    assert told(format_of(name), text) == [Content(text)]


def test_a_thought_that_stops_inside_its_end() -> None:
    """The half tag is no thought."""
    assert told(format_of("Qwen-Qwen3-0.6B"), "<think>Rain?</thi") == [Thought("Rain?")]
