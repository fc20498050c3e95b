"""A stream's parts on their way to the client: whole events, or whole lines.

A worker that dies may leave half an event behind. Its client could make nothing of that, and it
would take the error that follows for the event's other half.
"""

from __future__ import annotations

# Of an event that is held back; a longer one is passed on in parts.
_MOST = 1 << 20
_BORDERS = {"text/event-stream": b"\n\n", "application/x-ndjson": b"\n"}


class WholeEvents:
    """Gives what is whole; the rest waits for its end."""

    def __init__(self, kind: str) -> None:
        """kind: the content type, without parameters"""
        self._border = _BORDERS[kind]
        self._rest = b""

    def take(self, data: bytes) -> bytes:
        """The next part comes: what can be passed on now."""
        # A border may begin in the part before.
        data = self._rest + data
        cut = data.rfind(self._border)
        cut = cut + len(self._border) if cut >= 0 else 0
        if len(data) - cut > _MOST:
            cut = len(data)
        self._rest = data[cut:]
        return data[:cut]

    def end(self) -> bytes:
        return self._rest
