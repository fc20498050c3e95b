"""Reads a model's text as it grows."""

from __future__ import annotations

from typing import Protocol

from worker.chat.events import ChatEvent, Content


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
