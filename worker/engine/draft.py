"""Prompt-lookup drafts: what followed the same few tokens earlier in the same sequence.

The draft's rows are verified in the batch that computes them: each row is sampled by the
sequence's own sampler from its own logits, and the next row counts only if the draft had guessed
that token. So the distribution of what is sampled does not change, only the number of steps.
(The idea: A. Saxena, "Prompt Lookup Decoding", 2023.)
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import numpy as np

NGRAM = 3
MAX_DRAFT = 8
_LENGTHS = (1, 2, 3, 4, 6, 8)
# How much faster a step with drafts must promise to be before it is tried.
_WORTH = 1.05
# Weight of the newest guess in the running hit rate; the first guesses are given some credit.
_NEW = 0.15
_FIRST_HIT_RATE = 0.4


class Draft:
    """One sequence's table of n-grams and how often its guesses were right."""

    __slots__ = ("_indexed", "_table", "hit_rate", "num_accepted", "num_drafted", "tokens")

    def __init__(self) -> None:
        self._table: dict[tuple[int, ...], int] = {}
        self._indexed = NGRAM
        self.hit_rate = _FIRST_HIT_RATE
        self.num_drafted = 0
        self.num_accepted = 0
        self.tokens: list[int] = []  # the guess for the coming step

    def guess(self, tokens: np.ndarray, num_known: int, limit: int) -> None:
        """Set `tokens` to what may follow tokens[:num_known], at most MAX_DRAFT and `limit`."""
        self.tokens = []
        # tokens[at - NGRAM : at] was followed by tokens[at]; the newest place wins.
        if num_known - self._indexed > 1:
            known = tokens[:num_known].tolist()
            for at in range(self._indexed, num_known):
                self._table[tuple(known[at - NGRAM : at])] = at
            self._indexed = num_known
        elif num_known > self._indexed:
            self._table[tuple(tokens[num_known - 1 - NGRAM : num_known - 1].tolist())] = (
                num_known - 1
            )
            self._indexed = num_known
        if num_known < NGRAM:
            return
        found = self._table.get(tuple(tokens[num_known - NGRAM : num_known].tolist()))
        if found is not None:
            self.tokens = tokens[found : min(found + min(MAX_DRAFT, limit), num_known)].tolist()

    def judge(self, *, right: bool) -> None:
        """A guessed token turned out right or wrong, whether its row was computed or not."""
        self.hit_rate += _NEW * (right - self.hit_rate)

    def expected(self, length: int) -> float:
        """Tokens that a draft of this length is expected to save: h + h^2 + ... + h^length."""
        return sum(self.hit_rate**i for i in range(1, min(length, len(self.tokens)) + 1))


class StepCost:
    """Seconds that a step of decode rows takes, by their number, as measured."""

    _FRESH = 0.2
    # Before a size was ever run: each further row costs this share of the last known row's.
    _GUESS = 0.6

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def observe(self, rows: int, seconds: float) -> None:
        """A step of so many rows took this long."""
        old = self._seconds.get(rows)
        self._seconds[rows] = seconds if old is None else old + self._FRESH * (seconds - old)

    def seconds(self, rows: int) -> float:
        """The measured cost, or one drawn between and beyond the nearest measured sizes."""
        known = self._seconds.get(rows)
        if known is not None:
            return known
        below = max((n for n in self._seconds if n < rows), default=None)
        above = min((n for n in self._seconds if n > rows), default=None)
        if below is None:
            return self._seconds[above] * rows / above if above else 1.0
        if above is None:
            per_row = self._seconds[below] / below
            return self._seconds[below] + self._GUESS * per_row * (rows - below)
        share = (rows - below) / (above - below)
        return self._seconds[below] + share * (self._seconds[above] - self._seconds[below])


def best_length(drafts: Ordered[Draft], streams: int, cost: StepCost, max_rows: int) -> int:
    """How many guessed tokens each stream should verify in the coming step; 0 for none.

    streams: sequences that get a row in any case, with a draft or without
    Compares tokens per second with and without, at the measured cost of a step of so many rows.
    """
    best, fastest = 0, streams / cost.seconds(streams) * _WORTH
    for length in _LENGTHS:
        rows = streams + sum(min(length, len(draft.tokens)) for draft in drafts)
        if rows > max_rows or rows == streams:
            break
        tokens = streams + sum(draft.expected(length) for draft in drafts)
        speed = tokens / cost.seconds(rows)
        if speed > fastest:
            best, fastest = length, speed
    return best
