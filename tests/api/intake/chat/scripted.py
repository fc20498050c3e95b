"""Answers without a model: deltas of given texts, and a reader of a small markup.

(why)      a thought
[sky:{}]   a call, its arguments as they are written; a call that is not closed has not ended
"""

from __future__ import annotations

from worker.chat.reader import Arguments, CallBegun, CallEnded, ChatEvent, Content, Thought
from worker.engine.sequence import Delta, Timings


class Scripted:
    """A ChatReader of the markup; it reads a character at a time and tells nothing late."""

    def __init__(self) -> None:
        self._mode = "content"
        self._name = ""
        self._read_so_far = ""  # of a call
        self._count = 0

    @property
    def is_thinking(self) -> bool:
        return self._mode == "thought"

    def feed(self, text: str) -> list[ChatEvent]:
        events: list[ChatEvent] = []
        for character in text:
            events += self._read(character)
        return events

    def finish(self) -> list[ChatEvent]:
        return [Content(self._read_so_far)] if self._read_so_far else []

    def _read(self, character: str) -> list[ChatEvent]:
        if self._mode in ("name", "arguments"):
            self._read_so_far += character
        match self._mode, character:
            case "content", "(":
                self._mode = "thought"
            case "thought", ")":
                self._mode = "content"
            case "content", "[":
                self._mode, self._name, self._read_so_far = "name", "", character
            case "name", ":":
                self._mode = "arguments"
                return [CallBegun(self._count, f"call-{self._count}", self._name)]
            case "name", _:
                self._name += character
            case "arguments", "]":
                self._mode, self._count, self._read_so_far = "content", self._count + 1, ""
                return [CallEnded(self._count - 1)]
            case "arguments", "!":
                text, self._read_so_far = self._read_so_far, ""
                self._mode, self._count = "content", self._count + 1
                return [Content(text)]
            case "arguments", _:
                return [Arguments(self._count, character)]
            case "thought", _:
                return [Thought(character)]
            case _:
                return [Content(character)]
        return []


def deltas(
    *texts: str, reason: str | None = "stop", cached: int = 0, name: str = "x-0"
) -> list[Delta]:
    """A token for each text; with a reason the last one ends the answer."""
    found = [Delta(name, text, token) for token, text in enumerate(texts, start=1)]
    if reason is not None:
        last = found[-1]
        found[-1] = Delta(
            name, last.text, last.token, finish_reason=reason, cached_tokens=cached,
            timings=Timings(0.0, 0.0, 1.0, 2.0),
        )  # fmt: skip
    return found
