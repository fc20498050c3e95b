"""The body of an answer, written straight to its connection.

An ASGI message for each part wakes up the task that sends it. Who has the parts in a callback
already writes them from there: a stream's exchange.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from worker.http.connections import WIRE
from worker.http.protocol import Protocol


class Wire:
    """For the parts between ASGI's `http.response.start` and a last, empty message."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        """cycle: uvicorn's request and answer"""
        self._cycle = cycle

    @property
    def is_clear(self) -> bool:
        """Whether the client takes what is written."""
        return not self._cycle.flow.write_paused

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

    def prepare(self, cycle: RequestResponseCycle) -> None:
        cycle.scope[WIRE] = Wire(cycle)  # type: ignore[typeddict-unknown-key]
