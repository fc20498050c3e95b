"""Prompt lookup: what followed the same few tokens earlier in the same sequence.

(The idea: A. Saxena, "Prompt Lookup Decoding", 2023.)
"""

from __future__ import annotations

import numpy as np

NGRAM = 3
MAX_GUESS = 48
_MOST_SAME = 32  # so many tokens in common say as much as more do


def num_same(one: np.ndarray, end: int, other: np.ndarray, stop: int) -> int:
    """How many tokens before one[end] and before other[stop] are the same, of the newest few."""
    most = min(_MOST_SAME, end, stop)
    differ = np.flatnonzero(one[end - most : end] != other[stop - most : stop])
    return most - 1 - int(differ[-1]) if len(differ) else most


class Lookup:
    """An index of one sequence's runs of NGRAM tokens; it grows with the sequence."""

    __slots__ = ("_indexed", "_table")

    def __init__(self) -> None:
        self._table: dict[tuple[int, ...], int] = {}  # NGRAM tokens -> where the next one stands
        self._indexed = NGRAM

    def guess(self, tokens: np.ndarray, num_known: int, limit: int) -> tuple[list[int], int]:
        """What may follow tokens[:num_known], at most MAX_GUESS and `limit` tokens, or none; and
        how many tokens before it are the same at both places."""
        # tokens[at - NGRAM : at] was followed by tokens[at]; the newest place wins.
        if num_known - self._indexed > 1:
            known = tokens[:num_known].tolist()
            for at in range(self._indexed, num_known):
                self._table[tuple(known[at - NGRAM : at])] = at
            self._indexed = num_known
        if num_known < NGRAM:
            return [], 0
        # One slice for both: after a decode each numpy call costs microseconds.
        newest = tokens[max(0, num_known - 1 - NGRAM) : num_known].tolist()
        if num_known > self._indexed:
            self._table[tuple(newest[:-1])] = self._indexed
            self._indexed = num_known
        found = self._table.get(tuple(newest[-NGRAM:]))
        if found is None:
            return [], 0
        count = min(MAX_GUESS, limit)
        period = tokens[found : min(found + count, num_known)].tolist()
        repeated = (period * -(-count // len(period)))[:count]  # what repeats goes on repeating
        return repeated, num_same(tokens, found, tokens, num_known)
