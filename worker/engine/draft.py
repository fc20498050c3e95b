"""Prompt-lookup drafts: what followed the same few tokens earlier in the same sequence.

The draft's rows are verified in the batch that computes them: each row is sampled by the
sequence's own sampler from its own logits, and the next row counts only if the draft had guessed
that token. So the distribution of what is sampled does not change, only the number of steps.
(The idea: A. Saxena, "Prompt Lookup Decoding", 2023.)
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import numpy as np

from worker.engine.cost import StepCost

NGRAM = 3
MAX_DRAFT = 8
_LENGTHS = (1, 2, 3, 4, 6, 8)
# How much faster a step with drafts must promise to be before it is tried.
_WORTH = 1.05
# Weight of the newest guess in the running hit rate; the first guesses are given some credit.
_NEW = 0.15
_FIRST_HIT_RATE = 0.4


class Draft:
    """What may follow in one sequence, and how often such guesses were right.

    tokens        the guess for the coming step; may be empty
    hit_rate      share of guessed tokens that are right, the newest count most
    num_drafted   guessed tokens whose rows were computed; num_accepted of them were right
    """

    __slots__ = ("_indexed", "_table", "hit_rate", "num_accepted", "num_drafted", "tokens")

    def __init__(self) -> None:
        self._table: dict[tuple[int, ...], int] = {}  # NGRAM tokens -> where the next one stands
        self._indexed = NGRAM
        self.hit_rate = _FIRST_HIT_RATE
        self.num_drafted = 0
        self.num_accepted = 0
        self.tokens: list[int] = []

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

    def judge(self, place: int, token: int | None) -> bool:
        """Whether the guess at `place` was the token that was sampled there.

        Guesses whose row was not computed count in the hit rate too.
        """
        if place >= len(self.tokens):
            return False
        right = self.tokens[place] == token
        self.hit_rate += _NEW * (right - self.hit_rate)
        return right

    def expected(self, length: int) -> float:
        """Tokens that a draft of this length is expected to save: h + h^2 + ... + h^length."""
        return sum(self.hit_rate**i for i in range(1, min(length, len(self.tokens)) + 1))


def best_length(drafts: Ordered[Draft], streams: int, cost: StepCost, max_rows: int) -> int:
    """How many guessed tokens each stream should verify in the coming step; 0 for none.

    streams: sequences that get a row in any case, with a draft or without
    Compares tokens per second with and without, at the measured cost of a step of so many rows.
    Before any step was measured all steps count as equally long, so that drafts are tried.
    """

    def speed(tokens: float, rows: int) -> float:
        return tokens / (cost.decode(rows) or 1.0)

    best, fastest = 0, speed(streams, streams) * _WORTH
    for length in _LENGTHS:
        rows = streams + sum(min(length, len(draft.tokens)) for draft in drafts)
        if rows > max_rows or rows == streams:
            break
        promised = speed(streams + sum(draft.expected(length) for draft in drafts), rows)
        if promised > fastest:
            best, fastest = length, promised
    return best
