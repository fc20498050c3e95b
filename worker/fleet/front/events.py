"""A stream's parts on their way to the client: whole events, or whole lines.

A worker that dies may leave half an event behind. Its client could make nothing of that, and it
would take the error that follows for the event's other half.
"""

from __future__ import annotations

from worker.fleet.front.connection import Sink

# Of an event that is held back; a longer one is passed on in parts.
_MOST = 1 << 20
_BORDERS = {b"text/event-stream": b"\n\n", b"application/x-ndjson": b"\n"}


class WholeEvents:
    """Passes on what is whole; the rest waits for its end."""

    def __init__(self, sink: Sink, kind: bytes) -> None:
        """kind: the content type, without parameters"""
        self._sink = sink
        self._border = _BORDERS[kind]
        self._rest: list[bytes] = []

    def take(self, data: bytes) -> None:
        """The next part."""
        if data.endswith(self._border):
            if self._rest:
                data = b"".join([*self._rest, data])
                self._rest.clear()
            self._sink(data)
            return
        # A border may begin in the part before.
        self._rest.append(data)
        data = b"".join(self._rest)
        cut = data.rfind(self._border)
        if cut >= 0:
            cut += len(self._border)
            self._sink(data[:cut])
            data = data[cut:]
        self._rest = [data] if data else []
        if len(data) > _MOST:
            self.end()

    def end(self) -> None:
        """Pass on also what has no border."""
        if self._rest:
            self._sink(b"".join(self._rest))
            self._rest.clear()
