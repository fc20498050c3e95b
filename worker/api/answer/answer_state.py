"""What a model has said in one answer."""

from __future__ import annotations

from hashlib import sha256

from worker.chat.message import Call
from worker.chat.reader import (
    Arguments,
    CallBegun,
    CallEnded,
    ChatEvent,
    ChatReader,
    Content,
    Thought,
)
from worker.engine.sequence import Delta


class AnswerState:
    """One answer, read from its deltas.

    calls              those that have ended
    finish_reason      stop, length, or tool_calls; None: it still goes on
    num_thought_tokens tokens that were sampled inside thoughts
    """

    def __init__(self, reader: ChatReader, name: str | None = None) -> None:
        """name: of the answer, from which its calls' ids follow; None: they are random"""
        self._reader, self._name = reader, name
        self._contents: list[str] = []
        self._thoughts: list[str] = []
        self._begun: CallBegun | None = None
        self._arguments: list[str] = []
        self._thinks = False  # something of the thought at hand was told
        self.calls: list[Call] = []
        self.finish_reason: str | None = None
        self.num_thought_tokens = 0

    @property
    def content(self) -> str:
        """The answer's text so far; the reader tells a call that never ended as text."""
        return "".join(self._contents)

    @property
    def thought(self) -> str:
        return "".join(self._thoughts)

    def take(self, delta: Delta) -> list[ChatEvent]:
        """What the delta makes certain."""
        events = self._reader.feed(delta.text)
        if delta.finish_reason is not None:
            events += self._reader.finish()
        if self._name is not None:
            events = [self._rename(event, self._name) for event in events]
        for event in events:
            self._note(event)
        thinks = self._thinks
        self.num_thought_tokens += thinks and delta.token is not None
        self._thinks = thinks and self._reader.is_thinking
        if delta.finish_reason is not None:
            called = self.calls and delta.finish_reason == "stop"
            self.finish_reason = "tool_calls" if called else delta.finish_reason
        return events

    def _rename(self, event: ChatEvent, name: str) -> ChatEvent:
        if not isinstance(event, CallBegun):
            return event
        digits = sha256(f"{name} {event.index}".encode()).hexdigest()
        known = "call_" if event.id.startswith("call_") else ""
        return CallBegun(event.index, known + digits[: len(event.id) - len(known)], event.name)

    def _note(self, event: ChatEvent) -> None:
        match event:
            case Content(text):
                self._contents.append(text)
            case Thought(text):
                self._thoughts.append(text)
                self._thinks = True
            case CallBegun():
                self._begun, self._arguments = event, []
            case Arguments(_, text):
                self._arguments.append(text)
            case CallEnded():
                assert self._begun is not None
                arguments = "".join(self._arguments)
                self.calls.append(Call(self._begun.id, self._begun.name, arguments))
