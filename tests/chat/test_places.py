"""What is said in any place of a conversation reaches the prompt, with every template."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chat.dialects.telling import TOOLS, format_of
from tests.support.cases import for_each
from tests.support.models import templates
from worker.chat.message import Call, Message
from worker.chat.thinking import Thinking

pytestmark = pytest.mark.skipif(not templates.names(), reason=templates.WHY_NOT)


def said(role: str, word: str | None, *calls: Call, **more: Any) -> Message:
    """A message whose words no template writes by itself."""
    return Message(role=role, content=word, calls=calls, **more)


def call(word: str, number: int = 1, arguments: str | None = None) -> Call:
    """A call of a tool with this word as its argument, under an id as OpenAI gives them."""
    return Call(f"call_zq{number}abcdefghijklmnop", "sky", arguments or f'{{"at": "{word}"}}')


def result(word: str, number: int = 1, **more: Any) -> Message:
    return said("tool", word, call_id=f"call_zq{number}abcdefghijklmnop", **more)


S, U, A = said("system", "zqS"), said("user", "zqU"), said("assistant", "zqA")
LATER, U2, A2 = said("system", "zqLater"), said("user", "zqU2"), said("assistant", "zqA2")
CALL, R = said("assistant", None, call("zqC")), result("zqR")
TWO = said("assistant", None, call("zqC"), call("zqC2", 2))
CUT = '{"at": "zqC", "days'
LINES = '{"at": "zq\nC"}'
# What a conversation is -> its messages, and whether it has tools.
CONVERSATIONS: dict[str, tuple[tuple[Message, ...], bool]] = {
    "first system": ((S, U), False),
    "first system, with tools": ((S, U), True),
    "later system": ((S, U, A, LATER, U2), False),
    "later system, with tools": ((S, U, A, LATER, U2), True),
    "later system before an answer": ((U, LATER, A, U2), False),
    "system at the end": ((S, U, A, U2, LATER), False),
    "system beside a result": ((U, CALL, LATER, R), True),
    "system alone": ((S,), False),
    "turns": ((U, A, U2), False),
    "the assistant speaks first": ((A, U), False),
    "the assistant speaks first, after the system": ((S, A, U), False),
    "two questions": ((U, U2), False),
    "two answers": ((U, A, A2, U2), False),
    "nothing but an answer": ((A,), False),
    "an empty answer": ((U, said("assistant", ""), U2), False),
    "an answer that is null": ((U, said("assistant", None), U2), False),
    "an empty question": ((said("user", ""), A, U2), False),
    "nothing but a thought": ((U, said("assistant", "", thought="zqT"), U2), False),
    "a call": ((U, CALL, R), True),
    "a call and then an answer": ((S, U, CALL, R, A, U2), True),
    "a call without tools": ((U, CALL, R, A, U2), False),
    "a question beside a result": ((U, CALL, R, U2), True),
    "a question before a result": ((U, CALL, U2, R), True),
    "two calls": ((U, TWO, result("zqR"), result("zqR2", 2)), True),
    "two calls, results the other way": ((U, TWO, result("zqR2", 2), result("zqR")), True),
    "a text beside a call": ((U, said("assistant", "zqA", call("zqC")), R), True),
    "a text beside two calls": (
        (U, said("assistant", "zqA", *TWO.calls), result("zqR"), result("zqR2", 2)), True),
    "a result without a name": ((U, CALL, result("zqR"), A, U2), True),
    "no result": ((U, CALL, U2), True),
    "one of two results": ((U, TWO, result("zqR2", 2), A, U2), True),
    "a result of no call": ((U, result("zqR"), A, U2), True),
    "a result, and nothing was called": ((result("zqR"), U), False),
    "an error": ((U, CALL, result("zqR", is_error=True)), True),
    "cut arguments": ((U, said("assistant", None, call("", arguments=CUT)), R, A, U2), True),
    "arguments with raw lines": ((U, said("assistant", None, call("", arguments=LINES)), R), True),
    "arguments in a list": ((U, said("assistant", None, call("", arguments='["zqC"]')), R), True),
    "arguments in a fence": (
        (U, said("assistant", None, call("", arguments='```json\n{"at": 1}\n```')), R), True),
    "a name twice in arguments": (
        (U, said("assistant", None, call("", arguments='{"at": "zqC", "at": "zqC2"}')), R), True),
    "a name twice deep in arguments": (
        (U, said("assistant", "zqA", call("", arguments='{"a": [{"b": 1, "b": 2}]}')), R), True),
    "two objects as arguments": (
        (U, said("assistant", None, call("", arguments='{"at": 1}{"at": 2}')), R), True),
}  # fmt: skip


def words(messages: tuple[Message, ...]) -> list[str]:
    """What must be read in the prompt."""
    found: list[str] = []
    for message in messages:
        found += [message.content] if message.content else []
        for each in message.calls:
            whole = each.arguments.startswith('{"at": "zq') and each.arguments.endswith('"}')
            plain = whole and "\n" not in each.arguments and each.arguments.count(":") == 1
            found.append(each.arguments[8:-2] if plain else each.arguments)
    return found


@for_each("name", templates.names())
def test_all_that_was_said_arrives(name: str) -> None:
    """Each marked word of each place is in the prompt; nothing is refused, nothing vanishes."""
    made = format_of(name)
    wrong: list[str] = []
    for what, (messages, has_tools) in CONVERSATIONS.items():
        text = made.conversation(
            messages, TOOLS if has_tools else (), thinking=Thinking(),
            add_generation_prompt=True, continues=False, variables={},
        ).text  # fmt: skip
        wrong += [f"{what}: {word}" for word in words(messages) if word not in text]
        if has_tools and "days" not in text:
            wrong.append(f"{what}: the tools")
    assert not wrong


@for_each("name", templates.names())
def test_results_stand_at_their_calls(name: str) -> None:
    """Where nothing else says whose a result is, its place does; what is missing is said there."""
    made = format_of(name)

    def text(*results: Message) -> str:
        return made.conversation(
            (U, TWO, *results, A, U2), TOOLS, thinking=Thinking(),
            add_generation_prompt=True, continues=False, variables={},
        ).text  # fmt: skip

    first, second = result("zqFirst"), result("zqSecond", 2)
    swapped = text(second, first)
    if made.places["ids of calls"] == "any" and "call_zq1" not in swapped:
        assert swapped.index("zqFirst") < swapped.index("zqSecond")
    assert "There is no result of this call." in text(second)
    failed = text(result("zqFirst", is_error=True), second)
    assert "Error: zqFirst" in failed
