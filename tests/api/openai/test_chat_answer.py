"""A chat's answer in OpenAI's form; every event parses in the official client's types."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from openai.types.chat import ChatCompletion as TypedReply
from openai.types.chat import ChatCompletionChunk

from tests.api.intake.chat.scripted import Scripted, deltas
from worker.api.answer.answer_state import AnswerState
from worker.api.openai.chat import ChatAnswer
from worker.api.openai.schemas import ChatChoice, ChatCompletion


def answer(*texts: str, reason: str = "stop", **how: Any) -> tuple[ChatAnswer, list[Any]]:
    """The answer after tokens of these texts, and its events as a client reads them."""
    found = ChatAnswer(0, AnswerState(Scripted()), [b"?"] * 99, **how)
    events: list[Any] = []
    for delta in deltas(*texts, reason=reason):
        choices = found.take(delta)
        assert choices, "a token without an event"
        events += [read(choice, "chat.completion.chunk") for choice in choices]
    return found, events


def read(choice: ChatChoice, kind: str) -> Any:
    """One choice in the reply around it: strict types, then plain JSON."""
    head: Any = {"id": "c", "created": 1, "model": "m", "system_fingerprint": "f"}
    text = msgspec.json.encode(ChatCompletion(object=kind, choices=[choice], **head))
    shape = ChatCompletionChunk if kind.endswith("chunk") else TypedReply
    shape.model_validate_json(text, strict=True)
    return json.loads(text)["choices"][0]


def test_a_call_in_events() -> None:
    """Id, type and name come first and once, then the arguments as they are written."""
    found, events = answer("[sky:", '{"at":', ' "Rome"}', "]")
    first, *rest = [event["delta"] for event in events if "tool_calls" in event["delta"]]
    assert first == {
        "role": "assistant", "content": None,
        "tool_calls": [{"index": 0, "id": "call-0", "type": "function",
                        "function": {"name": "sky", "arguments": ""}}],
    }  # fmt: skip
    assert {tuple(d["tool_calls"][0]) for d in rest} == {("function", "index")}
    assert {tuple(d["tool_calls"][0]["function"]) for d in rest} == {("arguments",)}
    told = "".join(d["tool_calls"][0]["function"]["arguments"] for d in rest)
    assert json.loads(told) == {"at": "Rome"}
    assert [event["finish_reason"] for event in events][-1] == "tool_calls"
    whole = read(found.whole(0), "chat.completion")
    assert whole["finish_reason"] == "tool_calls"
    assert whole["message"] == {
        "role": "assistant", "content": None,
        "tool_calls": [{"id": "call-0", "type": "function",
                        "function": {"name": "sky", "arguments": told}}],
    }  # fmt: skip


def test_two_calls() -> None:
    """Each has its index; nothing of the first comes after the second has begun."""
    _, events = answer("[a:{}]", "[b:{}]")
    calls = [call for event in events for call in event["delta"].get("tool_calls", ())]
    assert [call["index"] for call in calls] == [0, 0, 0, 1, 1, 1]
    assert [call["id"] for call in calls if "id" in call] == ["call-0", "call-1"]


def test_a_call_that_never_ended() -> None:
    """The whole message has its text; a stream has told it and ends with the reason."""
    found, events = answer("so", "[sky:{", reason="length")
    message = found.whole(0).message
    assert message.content == "so[sky:{"  # type: ignore[union-attr]
    assert message.tool_calls is msgspec.UNSET  # type: ignore[union-attr]
    assert events[-1]["finish_reason"] == "length"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thoughts(field: str) -> None:
    """They stand in their own field; the tags' tokens tell nothing, not even an empty content."""
    found, events = answer("(", "w", "hy", ")", "so", field=field)
    assert [event["delta"] for event in events] == [
        {"role": "assistant", "content": None}, {field: "w"}, {field: "h"}, {field: "y"}, {},
        {"content": "s"}, {"content": "o"},
    ]  # fmt: skip
    message = read(found.whole(0), "chat.completion")["message"]
    assert message == {"role": "assistant", "content": "so", field: "why"}
    assert found.num_thought_tokens == 3


def test_silent_tokens_of_plain_answers() -> None:
    """A token without text is an event without content: an empty one would begin it."""
    _, events = answer("", "a", "")
    assert [event["delta"].get("content") for event in events] == [None, "a", None]
    assert events[0]["delta"]["role"] == "assistant"
