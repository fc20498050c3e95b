"""Token bytes to text, as they come."""

from __future__ import annotations

import codecs

_decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Turns one sequence's token bytes into text, holding back an unfinished character.

    A byte that can never become valid UTF-8 comes out as U+FFFD at once, so it silences nothing.
    """

    __slots__ = ("_decoder",)

    def __init__(self) -> None:
        self._decoder: codecs.IncrementalDecoder = _decoder(errors="replace")

    def feed(self, piece: bytes) -> str:
        """The text that `piece` completes; empty while a character is unfinished."""
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """What is still held back, as U+FFFD; the last call."""
        return self._decoder.decode(b"", True)
