"""A last message that is to go on: all that it says is in the prompt, with every template."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.chat.dialects.telling import TOOLS, format_of
from tests.support.cases import for_each
from tests.support.models import templates
from worker.chat.message import Call, Message
from worker.chat.reader import Content, Thought
from worker.chat.thinking import Thinking

pytestmark = pytest.mark.skipif(not templates.names(), reason=templates.WHY_NOT)

USER = Message(role="user", content="zqU")
SYSTEM = Message(role="system", content="zqS")
CALL = Call("call_zq1abcdefghijklmnop", "sky", '{"at": "zqC"}')
CALLS = Message(role="assistant", calls=(CALL,))
_CLOCK = re.compile(r"\d\d:\d\d:\d\d")
RESULT = Message(role="tool", content="zqR", call_id=CALL.id)


def answer(content: str | None, thought: str | None = None, *calls: Call) -> Message:
    return Message(role="assistant", content=content, thought=thought, calls=calls)


def prompt_of(name: str, *messages: Message, **options: Any) -> str:
    given: dict[str, Any] = {"add_generation_prompt": False, "continues": True, **options}
    made = format_of(name)
    text = made.conversation(messages, TOOLS, thinking=Thinking(), variables={}, **given).text
    return _CLOCK.sub("", text)  # some templates write what time it is


LAST: dict[str, tuple[Message, ...]] = {
    "a text and calls": (USER, answer("zqA", None, CALL)),
    "calls": (USER, CALLS),
    "a thought, a text and calls": (USER, answer("zqA", "zqT", CALL)),
    "a thought and calls": (USER, answer(None, "zqT", CALL)),
    "a thought": (USER, answer(None, "zqT")),
    "a thought and a text": (USER, answer("zqA", "zqT")),
    "nothing but an answer": (answer("zqA"),),
    "nothing but a thought": (answer(None, "zqT"),),
    "nothing but a call": (CALLS,),
    "an answer after the system": (SYSTEM, answer("zqA")),
    "the same answer again": (USER, answer("zqA"), USER, answer("zqA")),
    "two answers": (USER, answer("zqB"), answer("zqA")),
    "an answer after a result": (USER, CALLS, RESULT, answer("zqA")),
    "a question": (USER, answer("zqA"), Message(role="user", content="zqU2")),
    "a result": (USER, CALLS, RESULT),
    "the system": (USER, SYSTEM),
}


@for_each("name", templates.names())
def test_all_that_was_said_arrives(name: str) -> None:
    """Nothing is refused, nothing vanishes; an answer's text ends the prompt."""
    wrong: list[str] = []
    for what, messages in LAST.items():
        text = prompt_of(name, *messages)
        *_, last = messages
        said = [word for each in messages for word in (each.content, each.thought) if word]
        said = [word for word in said if word != "zqT" or last.thought]
        said += ["zqC" for each in messages if each.calls]
        wrong += [f"{what}: {word}" for word in said if word not in text]
        if last.role == "assistant" and last.content and not last.calls:
            wrong += [] if text.endswith(last.content) else [f"{what}: {text[-40:]!r}"]
    assert not wrong


@for_each("name", templates.names())
def test_a_thought_goes_on_with_its_space(name: str) -> None:
    """What is told follows what the client has."""
    made, messages = format_of(name), (USER, answer(None, "I'm"))
    prompt = prompt_of(name, *messages)
    reader = made.reader(TOOLS, prompt=prompt, thinking=Thinking())
    end = made.thought_end(prompt)
    events = reader.feed(f" thinking{end.text if end else ''}") + reader.finish()
    said = "".join(event.text for event in events if isinstance(event, Thought | Content))
    assert said == " thinking"


@for_each("name", templates.names())
@for_each("content", [None, "", " \n"])
def test_nothing_to_go_on_with(name: str, content: str | None) -> None:
    """The turn begins as without it."""
    plain = {"add_generation_prompt": True, "continues": False}
    assert prompt_of(name, USER, answer(content)) == prompt_of(name, USER, **plain)
    assert prompt_of(name, answer(content))


@for_each("name", templates.names())
@for_each("content", ["e", "assistant", "zqU", "<", "s"])
def test_what_stands_elsewhere_too(name: str, content: str) -> None:
    """The prompt ends behind the message, whatever else holds its words."""
    text = prompt_of(name, USER, answer(content))
    longer = prompt_of(name, USER, answer(content + "zqMore"))
    assert longer == text + "zqMore"
