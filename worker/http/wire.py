"""The body of an answer, written straight to its connection.

An ASGI message for each part wakes up the task that sends it. Who has the parts in a callback
already writes them from there: a stream's exchange, and the gateway of a fleet, which passes on
what another server says.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from typing import Protocol as Shape

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from worker.http.connections import WIRE
from worker.http.protocol import Protocol


class Pausing(Shape):
    """Where the parts come from; asyncio's transports are such."""

    def pause_reading(self) -> None:
        """Let nothing come for now."""
        ...

    def resume_reading(self) -> None:
        """Let it come again."""
        ...


class Wire:
    """For the parts between ASGI's `http.response.start` and a last, empty message."""

    def __init__(self, connection: WiredProtocol, cycle: RequestResponseCycle) -> None:
        """cycle: uvicorn's request and answer on that connection"""
        self._connection = connection
        self._cycle = cycle

    @property
    def is_cut(self) -> bool:
        """Whether the client has gone."""
        return self._cycle.disconnected

    def whole_body(self) -> bytes | None:
        """The request's body where all of it is here already; to be asked once."""
        if self._cycle.more_body:
            return None
        self._cycle.flow.resume_reading()  # a large one has held it up
        return bytes(self._cycle.body)

    @contextmanager
    def watched(self, tell: Callable[[], object]) -> Generator[None]:
        """Inside, `tell` is called when the client goes."""
        self._connection.tell = tell
        try:
            yield
        finally:
            self._connection.tell = None

    @property
    def is_clear(self) -> bool:
        """Whether the client takes what is written."""
        return not self._cycle.flow.write_paused

    def follow(self, source: Pausing | None) -> None:
        """Hold up this source while the client does not read; None: nobody any more."""
        self._connection.source = source
        if source is not None and self._cycle.flow.write_paused:
            source.pause_reading()

    def write(self, data: bytes) -> None:
        """Send a part, which is not empty; nothing happens where the client has gone."""
        cycle = self._cycle
        if cycle.disconnected or cycle.scope["method"] == "HEAD":
            return
        if cycle.chunked_encoding:
            cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
            return
        # To HTTP/1.0 what has no length ends with the connection.
        cycle.expected_content_length = max(0, cycle.expected_content_length - len(data))
        cycle.transport.write(data)


class WiredProtocol(Protocol):
    """A connection whose requests have a wire in their scope."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.source: Pausing | None = None
        self.tell: Callable[[], object] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        super().connection_lost(exc)
        if self.tell is not None:
            self.tell()

    def pause_writing(self) -> None:
        """Much waits for the reader."""
        super().pause_writing()
        if self.source is not None:
            self.source.pause_reading()

    def resume_writing(self) -> None:
        """The reader took most of it."""
        super().resume_writing()
        if self.source is not None:
            self.source.resume_reading()

    def prepare(self, cycle: RequestResponseCycle) -> None:
        """Add the wire."""
        cycle.scope[WIRE] = Wire(self, cycle)  # type: ignore[typeddict-unknown-key]
