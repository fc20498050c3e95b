"""Calls that are all of an answer, without what opens calls."""

from __future__ import annotations

import pytest

from tests.chat.dialects.telling import TOOLS, format_of, joined, read
from tests.support.models import templates
from worker.chat.reader import Arguments, CallBegun, CallEnded, ChatEvent, Content, Thought
from worker.chat.thinking import Thinking

pytestmark = pytest.mark.skipif(not templates.names(), reason=templates.WHY_NOT)
HERMES = ["Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "google-gemma-2-2b-it"]
ROME = '{"at": "Rome", "more": {"a": [1, "}"]}}'
CALL = f'{{"name": "sky", "arguments": {ROME}}}'


def told(name: str, text: str, **options: object) -> list[ChatEvent]:
    """The events of an answer; they are the same however it is cut."""
    made = format_of(name)
    whole = read(made, [text], **options)  # type: ignore[arg-type]
    assert read(made, text, **options) == whole  # type: ignore[arg-type]
    return whole


@pytest.mark.parametrize("name", HERMES)
@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"\n\n {CALL}\n",
        f"```json\n{CALL}\n```",
        f"```\n{CALL}```\n",
        f'{{ "name" : "sky" ,\n  "arguments" : {ROME}\n}}',
    ],
)
def test_all_of_an_answer(name: str, text: str) -> None:
    """An answer that is one object with the name of a tool and arguments is a call."""
    assert told(name, text) == [CallBegun(0, "", "sky"), Arguments(0, ROME), CallEnded(0)]


@pytest.mark.parametrize(
    "text",
    [
        f"Call: {CALL}",
        f"{CALL} I call it.",
        f"{CALL}\n{CALL}",
        f"```json\n{CALL}",
        f"```json\n{CALL}\n``` So.",
        CALL[:-1],
        CALL.replace("sky", "moon"),
        CALL.replace("arguments", "values"),
        '{"name": "sky"}',
        '{"name": "sky", "arguments": "Rome"}',
        f'{{"name": "sky", "arguments": {ROME}, "id": 1}}',
        f'{{"id": 1, "name": "sky", "arguments": {ROME}}}',
        f"[{CALL}]",
        "```python\nprint()\n```",
        "``",
    ],
)
def test_what_is_no_call(text: str) -> None:
    """JSON beside a text, of another tool or of another form is content as it was written."""
    assert "".join(each.text for each in told(HERMES[0], text) if isinstance(each, Content)) == text


def test_without_tools_and_in_other_dialects() -> None:
    """There it stays what it is: a text, or already a call."""
    assert told(HERMES[0], CALL, tools=()) == [Content(CALL)]
    assert told("Mistral-Small-3.2-24B-Instruct-2506", CALL) == [Content(CALL)]


def test_behind_a_thought() -> None:
    """A thought is told as it comes, and is no part of what the answer says."""
    events = told("Qwen-Qwen3-0.6B", f"<think>\nHm.\n</think>\n\n{CALL}")
    assert events == [Thought("Hm."), *told(HERMES[0], CALL)]


def test_beside_calls_with_marks() -> None:
    """What stood before one is content."""
    events = told(HERMES[0], f"{CALL}\n<tool_call>\n{CALL}\n</tool_call>")
    assert events == [Content(CALL), *told(HERMES[0], CALL)]


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["Yes", ", "], ["Yes", ","]),
        (['{"na', "me", '": "b'], ["", "", '{"name": "b']),
        (["``", "`py"], ["", "```py"]),
        ([CALL, " So"], ["", f"{CALL} So"]),
    ],
)
def test_what_is_held_back(pieces: list[str], shown: list[str]) -> None:
    """Only what may still become a call: other texts come as they are written."""
    reader = format_of(HERMES[0]).reader(TOOLS, prompt="", thinking=Thinking())
    found = [joined(reader.feed(piece)) for piece in pieces]
    assert found == [[Content(text)] if text else [] for text in shown]
