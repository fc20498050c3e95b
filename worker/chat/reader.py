"""Reads a model's text as it grows: content, thoughts, tool calls.

    <think>Rain?</think>I look.<tool_call>{"name": "sky", "arguments": {"at": "Rome"}}</tool_call>

    Thought("Rain?")  Content("I look.")  CallBegun(0, ID, "sky")  Arguments(0, '{"at": "Rome"}')
    CallEnded(0)

Calls follow each other: a call has ended before the next one begins. Thoughts and content may
stand before, between and after calls. Texts are never empty.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class Content(msgspec.Struct, frozen=True, gc=False):
    """More of the answer's text."""

    text: str


class Thought(msgspec.Struct, frozen=True, gc=False):
    text: str


class CallBegun(msgspec.Struct, frozen=True, gc=False):
    """A call whose name is known. index counts the calls of an answer from 0."""

    index: int
    id: str
    name: str


class Arguments(msgspec.Struct, frozen=True, gc=False):
    """More of the JSON text of a call's arguments."""

    index: int
    text: str


class CallEnded(msgspec.Struct, frozen=True, gc=False):
    """A call is whole: the texts of its `Arguments` together are a JSON object."""

    index: int


ChatEvent = Content | Thought | CallBegun | Arguments | CallEnded


class ChatReader(Protocol):
    """One answer's text as events. It holds back what may be the beginning of a marker."""

    @property
    def is_thinking(self) -> bool:
        """Whether what has been read ends inside a thought that is told as one."""
        ...

    def feed(self, text: str) -> list[ChatEvent]:
        """What the text makes certain; any split of an answer gives the same events, joined."""
        ...

    def finish(self) -> list[ChatEvent]:
        """The last events, once nothing follows. What was held back is told as what it is."""
        ...


class PlainReader:
    """For who wants text: all of it is content."""

    is_thinking = False

    def feed(self, text: str) -> list[ChatEvent]:
        return [Content(text)] if text else []

    def finish(self) -> list[ChatEvent]:
        """Nothing: nothing was held back."""
        return []
