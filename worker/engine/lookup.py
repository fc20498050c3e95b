"""Prompt lookup: what followed the same few tokens earlier in the same sequence.

(The idea: A. Saxena, "Prompt Lookup Decoding", 2023.)
"""

from __future__ import annotations

import math

import numpy as np

NGRAM = 3
MAX_GUESS = 48
MOST_SAME = 32  # so many tokens in common say as much as more do
# What a trail counts for behind one token that was another: see Trail.
CHANGED = 4


def num_same(one: np.ndarray, end: int, other: np.ndarray, stop: int) -> int:
    """How many tokens before one[end] and before other[stop] are the same, of the newest few."""
    most = min(MOST_SAME, end, stop)
    differ = np.flatnonzero(one[end - most : end] != other[stop - most : stop])
    return most - 1 - int(differ[-1]) if len(differ) else most


class Trail:
    """The place of a text that a sequence repeats now, kept from step to step.

    Two places that follow the same few tokens differ further on. Where one of them was right, it
    is right again, so it is not looked up anew. Behind one token that is another one it goes on as
    if that stood in the place of the text's: so edits do.

    text  the sequence's own tokens, or other texts, each with a negative number behind it; None:
          nothing is repeated
    end   where the next token stands there
    same  how many tokens before it are the same at both places
    until tokens in others' texts, ever, with which that place is another's, see `Recall`
    """

    __slots__ = ("_known", "end", "same", "text", "until")

    def __init__(self) -> None:
        self.text: np.ndarray | None = None
        self.end = self.same = self._known = 0
        self.until = math.inf

    def begin(
        self, text: np.ndarray, end: int, same: int, num_known: int, until: float = math.inf
    ) -> None:
        self.text, self.end, self.same, self._known = text, end, same, num_known
        self.until = until

    def follow(self, tokens: np.ndarray, num_known: int) -> None:
        """Go on to where tokens[:num_known] lead."""
        text, end, added = self.text, self.end, num_known - self._known
        if text is None or not added:
            return
        self.end, self._known = end + added, num_known
        new = tokens[num_known - added : num_known].tolist()
        old = text[end : end + added].tolist()
        if old == new:
            self.same += added
        elif self.same > CHANGED and old[:-1] == new[:-1] and old[-1:] > [-1]:
            self.same = CHANGED
        else:
            self.end_here()

    def end_here(self) -> None:
        """Nothing is repeated."""
        self.text, self.same = None, 0

    def next(self, tokens: np.ndarray, num_known: int, limit: int) -> list[int]:
        """What may follow tokens[:num_known], at most MAX_GUESS and `limit` tokens."""
        text, end, count = self.text, self.end, min(MAX_GUESS, limit)
        if text is None:
            return []
        if text is not tokens:
            found: list[int] = text[end : end + count].tolist()
            if min(found, default=0) < 0:
                del found[next(place for place, token in enumerate(found) if token < 0) :]
            return found
        period: list[int] = tokens[end : min(end + count, num_known)].tolist()
        return (period * -(-count // len(period)))[:count]  # what repeats goes on repeating


class Lookup:
    """An index of one sequence's runs of NGRAM tokens; it grows with the sequence."""

    __slots__ = ("_indexed", "_table")

    def __init__(self) -> None:
        self._table: dict[tuple[int, ...], int] = {}  # NGRAM tokens -> where the next one stands
        self._indexed = NGRAM

    def find(self, tokens: np.ndarray, num_known: int) -> tuple[int, int]:
        """Where what may follow tokens[:num_known] stands in them, and how many tokens before it
        are the same; (0, 0): nowhere."""
        # tokens[at - NGRAM : at] was followed by tokens[at]; the newest place wins.
        if num_known - self._indexed > 1:
            known = tokens[:num_known].tolist()
            for at in range(self._indexed, num_known):
                self._table[tuple(known[at - NGRAM : at])] = at
            self._indexed = num_known
        if num_known < NGRAM:
            return 0, 0
        # One slice for both: after a decode each numpy call costs microseconds.
        newest = tokens[max(0, num_known - 1 - NGRAM) : num_known].tolist()
        if num_known > self._indexed:
            self._table[tuple(newest[:-1])] = self._indexed
            self._indexed = num_known
        found = self._table.get(tuple(newest[-NGRAM:]))
        return (found, num_same(tokens, found, tokens, num_known)) if found else (0, 0)
