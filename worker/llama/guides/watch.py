"""Watches a text for what a constraint starts after."""

from __future__ import annotations

from worker.grammar.constraint import Constraint


class Watch:
    """The last bytes of a free text, as many as a trigger may begin in.

    starts_after ("<call>",)   look(b"a <ca") -> None, add; look(b"ll>{") -> b"{"
    """

    def __init__(self, constraint: Constraint) -> None:
        self._texts = [text.encode() for text in constraint.starts_after]
        self._tokens = frozenset(constraint.starts_after_tokens)
        self._room = max((len(text) for text in self._texts), default=1) - 1
        self._tail = b""

    def look(self, token: int, piece: bytes) -> bytes | None:
        """What follows the first trigger that this token would complete; None: it completes none.

        piece: the token's bytes
        """
        if token in self._tokens:
            return b""
        text = self._tail + piece
        ends = [at + len(t) for t in self._texts if (at := text.find(t)) >= 0]
        return text[min(ends) :] if ends else None

    def add(self, piece: bytes) -> None:
        """The token was written and completed no trigger."""
        self._tail = (self._tail + piece)[-self._room :] if self._room else b""

    def clear(self) -> None:
        self._tail = b""
