"""A text that grows, read by coroutines that wait where it ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from worker.chat.reader import ChatEvent

T = TypeVar("T")
# Reads from a source: it yields where more text is needed, and is resumed once there is some.
Steps = Generator[None, None, T]

_SPACE = " \t\r\n"


class DamagedError(Exception):
    """The text is not what its marker promised."""


class TextSource:
    """The text that came so far, and the place up to which it was read.

    What was read since the `mark` is kept, so that it can be read again as something else.
    """

    def __init__(self, text: str = "") -> None:
        self._text = text
        self._place = 0
        self._kept: list[str] = []  # of before _text, since the mark
        self._marked = 0
        self.is_ended = False

    def feed(self, text: str) -> None:
        """More text. What was read and is not kept is forgotten."""
        self._kept.append(self._text[self._marked : self._place])
        self._text = self._text[self._place :] + text
        self._place = self._marked = 0

    def mark(self) -> None:
        self._kept.clear()
        self._marked = self._place

    @property
    def since_mark(self) -> str:
        """What was read since the mark."""
        return "".join(self._kept) + self._text[self._marked : self._place]

    def rewind(self) -> None:
        if self._kept:
            self._text = "".join(self._kept) + self._text[self._marked :]
            self._kept.clear()
            self._marked = 0
        self._place = self._marked

    @property
    def rest(self) -> str:
        """What came and was not read."""
        return self._text[self._place :]

    def skip(self, count: int) -> None:
        """Read so many characters; they have come."""
        self._place += count

    def take(self, markers: Sequence[str]) -> tuple[str, str | None]:
        """Read up to the first marker: the text before it, and the marker, which is read too.

        Where none has come: the text that is certain to be before any, and None. Of two markers
        at one place the longer one counts.
        """
        text, start = self._text, self._place
        found, marker = len(text), None
        for candidate in markers:
            place = text.find(candidate, start, found + len(candidate))
            if place >= 0 and (place < found or len(candidate) > len(marker or "")):
                found, marker = place, candidate
        if not self.is_ended:
            held = self._marker_start(markers, found, longer_than=len(marker or ""))
            if held is not None:
                found, marker = held, None
        self._place = found + len(marker or "")
        return text[start:found], marker

    def _marker_start(self, markers: Sequence[str], found: int, *, longer_than: int) -> int | None:
        """Where a marker may begin whose end has not come, at `found` or before it."""
        text = self._text
        first = max(self._place, len(text) - max(map(len, markers), default=0) + 1)
        for place in range(first, min(found + 1, len(text))):
            tail = text[place:]
            for marker in markers:
                if (
                    marker.startswith(tail)
                    and len(marker) > len(tail)
                    and (place < found or len(marker) > longer_than)
                ):
                    return place
        return None

    def peek(self, count: int = 1) -> Steps[str]:
        """The next characters, fewer only at the end of the text."""
        while len(self._text) - self._place < count and not self.is_ended:
            yield
        return self._text[self._place : self._place + count]

    def space(self) -> Steps[None]:
        while True:
            char = yield from self.peek()
            if not char or char not in _SPACE:
                return
            self.skip(1)

    def one_of(self, *texts: str) -> Steps[str | None]:
        """Read the one of these texts that comes next, the longest that fits; None: none does."""
        for text in sorted(texts, key=len, reverse=True):
            for count in range(1, len(text) + 1):
                came = yield from self.peek(count)
                if came != text[:count]:
                    break
            else:
                self.skip(len(text))
                return text
        return None

    def expect(self, *texts: str) -> Steps[str]:
        """As `one_of`. Raises DamagedError where none comes."""
        found = yield from self.one_of(*texts)
        if found is None:
            raise DamagedError
        return found

    def close(self, *texts: str) -> Steps[None]:
        """Read the one of these texts that comes next, or the beginning of one with which the
        answer stops."""
        if (yield from self.one_of(*texts)) is None and self.is_ended:
            rest = self.rest
            if any(text.startswith(rest) for text in texts):
                self.skip(len(rest))

    def until(self, *ends: str, fits: Callable[[str], bool]) -> Steps[tuple[str, str]]:
        """The text up to the first of these ends, and the end, which is read too.

        Raises DamagedError at the end of the text, and where what came so far does not fit.
        """
        text = ""
        while True:
            more, end = self.take(ends)
            text += more
            if end is not None:
                return text, end
            if self.is_ended or not fits(text):
                raise DamagedError
            yield


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
