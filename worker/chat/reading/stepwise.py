"""A reader that is written as one function, which waits where it needs more text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator

from worker.chat.reader import ChatEvent
from worker.chat.reading.source import TextSource


class StepwiseReader(ABC):
    """Goes on with `_read` when there is more text; tells what that put into `_events`."""

    def __init__(self, text: str = "") -> None:
        """text: what the answer begins with"""
        self._source = TextSource(text)
        self._events: list[ChatEvent] = []
        self._steps: Generator[None, None, None] | None = self._read()

    def feed(self, text: str) -> list[ChatEvent]:
        self._source.feed(text)
        return self._go_on()

    def finish(self) -> list[ChatEvent]:
        self._source.is_ended = True
        return self._go_on()

    @property
    @abstractmethod
    def is_thinking(self) -> bool:
        """Whether what has been read ends inside a thought that is told as one."""

    @abstractmethod
    def _read(self) -> Generator[None, None, None]:
        """Read all of the answer; it begins with the first `feed`."""

    def _go_on(self) -> list[ChatEvent]:
        if self._steps is not None:
            try:
                next(self._steps)
            except StopIteration:
                self._steps = None
        events = self._events[:]
        self._events.clear()
        return events
