"""What a model said, from events."""

from __future__ import annotations

import pytest

from tests.api.intake.chat.scripted import Scripted, deltas
from worker.api.answer.answer_state import AnswerState
from worker.chat.message import Call
from worker.chat.reader import PlainReader


def said(text: str, reason: str = "stop", *, size: int = 1) -> AnswerState:
    """After a text in tokens of `size` characters."""
    found = AnswerState(Scripted())
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    for delta in deltas(*pieces, reason=reason):
        found.take(delta)
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_parts(size: int) -> None:
    """Thought, content and calls are told apart, however the text is cut."""
    found = said("(hm)I look.[sky:{}][sea:{1}]", size=size)
    assert (found.thought, found.content) == ("hm", "I look.")
    assert found.calls == [Call("call-0", "sky", "{}"), Call("call-1", "sea", "{1}")]
    assert found.finish_reason == "tool_calls"


@pytest.mark.parametrize("reason", ["length", "stop"])
def test_a_call_that_never_ended_is_text(reason: str) -> None:
    """It is the answer's text as it was written, and no call."""
    found = said("I look.[sky:{a", reason)
    assert (found.content, found.calls) == ("I look.[sky:{a", [])
    assert found.finish_reason == reason


def test_calls_before_one_that_never_ended() -> None:
    """Those that ended stay calls."""
    found = said("[sky:{}][sea:{a", "length")
    assert [call.name for call in found.calls] == ["sky"]
    assert found.content == "[sea:{a"
    assert found.finish_reason == "length"


def test_a_call_that_breaks() -> None:
    """What comes after it is told as it is."""
    found = said("[sky:{a!so(hm)[sea:{}]")
    assert (found.content, found.thought) == ("[sky:{a!so", "hm")
    assert found.calls == [Call("call-1", "sea", "{}")]


def test_counts_thoughts() -> None:
    """Each token counts that was sampled inside a thought, told or not."""
    found = said("a(bcd)e")
    assert found.num_thought_tokens == 4  # b, c, d and what closes it
    # Not what a call's begin takes, of which nothing is told before it is certain.
    assert said("(bc)[sky:{}]").num_thought_tokens == 3
    plain = AnswerState(PlainReader())
    for delta in deltas("(b", ")"):
        plain.take(delta)
    assert (plain.num_thought_tokens, plain.content) == (0, "(b)")
