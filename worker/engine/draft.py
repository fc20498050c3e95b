"""Guesses of the tokens that follow, and how often such guesses were right.

A guess's rows are verified in the batch that computes them: each row is sampled by the sequence's
own sampler from its own logits, and the next row counts only if the guess had that token. So the
distribution of what is sampled does not change, only the number of steps.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence as Ordered
from typing import Literal

import msgspec

from worker.engine.cost import StepCost
from worker.engine.credit import Credit
from worker.engine.lookup import Lookup, Trail

# Where a guess comes from: earlier text of the sequence, or a second model or heads.
DraftSource = Literal["text", "model"]

# Weights of the newest guess in the hit rates: of its sequence, and of all sequences.
_NEW, _NEW_OF_ALL = 0.05, 0.03
# What such guesses meant in all sequences counts as much as so many of its own.
_ELSEWHERE = 8
# The first ones count more: so many guesses are as good as what was taken for granted.
_GRANTED = 4
# A model's first guesses are given some credit.
_FIRST_HIT_RATE = 0.4
_HOPELESS = 0.03
_MOST = 0.98  # nothing is certain, and a longer guess is less certain than a shorter one
# Between these marks guesses count as equally good: a model's by the probability that it gives
# them, those from a text by how many tokens before them are the same.
_MARKS: dict[DraftSource, tuple[float, ...]] = {
    "text": (4, 6, 9, 14, 20, 32),
    "model": (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97),
}
# What they are taken for before any was judged.
_FIRST: dict[DraftSource, tuple[float, ...]] = {
    "text": (0.25, 0.4, 0.55, 0.7, 0.8, 0.88, 0.94),
    "model": (_FIRST_HIT_RATE,) * 8,
}
# How much faster a step with guesses must promise to be, and that of the one stream in it: the best
# of many numbers of rows is one that promises too much.
WORTH, _WORTH_ALONE = 1.05, 1.15
# Above so many rows only whole blocks are considered: there are too many numbers to compare.
_EVERY_NUMBER, _BLOCK = 8, 4


class GuessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator allows; None: as long as pays.

    longest        tokens of a guess, by a model or heads; longest_text: from the text
    least          probability of a token that a model or heads may guess
    """

    longest: int | None = None
    longest_text: int | None = None
    least: float = 0.0


NO_LIMITS = GuessLimits()


class HitRates:
    """How often guesses were right, over all sequences.

    model   share of a model's guesses that are right, the newest count most
    sure    the same of each source by about which mark they had, see _MARKS
    """

    def __init__(self) -> None:
        self.model = _FIRST_HIT_RATE
        self.sure = {source: list(first) for source, first in _FIRST.items()}
        self._counts = {source: [0] * len(first) for source, first in _FIRST.items()}

    def note(self, source: DraftSource, right: bool, mark: float) -> None:
        if source == "model":
            self.model += _NEW_OF_ALL * (right - self.model)
        sure, counts = self.sure[source], self._counts[source]
        place = bisect_right(_MARKS[source], mark)
        counts[place] += 1
        weight = max(_NEW_OF_ALL, 1 / (counts[place] + _GRANTED))
        sure[place] += weight * (right - sure[place])


class Draft:
    """What may follow in one sequence, and how often such guesses were right there.

    tokens        the guess for the coming step; may be empty
    source        where it comes from
    model_rate    share of a model's guesses that are right, the newest count most
    lookup        the index of its own text; None: that is not looked up
    trail         what it repeats
    credit        what guesses from texts may cost
    num_drafted   guessed tokens whose rows were computed; num_accepted of them were right
    """

    __slots__ = (
        "_expected",
        "_judged",
        "_marks",
        "_record",
        "_right",
        "credit",
        "lookup",
        "model_rate",
        "num_accepted",
        "num_drafted",
        "source",
        "tokens",
        "trail",
    )

    def __init__(self, record: HitRates, *, looks_up: bool) -> None:
        self._record = record
        self._marks: list[float] = []
        self._judged = 0  # of a model's guesses
        self._right: dict[DraftSource, float] = {"text": 0.0, "model": 0.0}
        self._expected = dict(self._right)
        self.lookup = Lookup() if looks_up else None
        self.trail = Trail()
        self.credit = Credit()
        self.model_rate = record.model
        self.source: DraftSource = "text"
        self.tokens: list[int] = []
        self.num_drafted = 0
        self.num_accepted = 0

    def offer(self, source: DraftSource, tokens: list[int], marks: list[float]) -> None:
        """The guess for the coming step. `marks`: see _MARKS."""
        self.source, self.tokens, self._marks = source, tokens, marks

    def extend(self, token: int, probability: float) -> None:
        """One more token, which the model gives this probability."""
        self.tokens.append(token)
        self._marks.append(probability)

    def shorten(self, length: int) -> None:
        """Forget what is guessed beyond `length` tokens."""
        del self.tokens[length:], self._marks[length:]

    def verify(self, count: int, num_known: int, steps: float) -> None:
        """So many tokens of the guess, which begins at num_known, cost so many steps, or would."""
        if count and self.source == "text":
            self.credit.note(self.tokens[:count], num_known, steps)

    def forget(self) -> None:
        """The sequence took tokens back: what was looked up of them is not there."""
        self.shorten(0)
        self.credit.forget()
        if self.lookup is not None:
            self.lookup, self.trail = Lookup(), Trail()

    def judge(self, place: int, token: int | None) -> bool:
        """Whether the guess at `place` was the token that was sampled there.

        Guesses whose row was not computed count in the hit rates too.
        """
        if place >= len(self.tokens):
            return False
        right, mark, source = self.tokens[place] == token, self._marks[place], self.source
        if source == "model":
            self._judged += 1
            weight = max(_NEW, 1 / (self._judged + _GRANTED))
            self.model_rate += weight * (right - self.model_rate)
        for sums, newest in ((self._right, right), (self._expected, self._sure(mark))):
            sums[source] += newest - _NEW * sums[source]
        self._record.note(source, right, mark)
        return right

    def _sure(self, mark: float) -> float:
        return self._record.sure[self.source][bisect_right(_MARKS[self.source], mark)]

    def chance(self, mark: float) -> float:
        """How likely a token with this mark is right, if those before it are.

        What that meant for all sequences, times how many more were right here than it says.
        """
        right, expected = self._right[self.source], self._expected[self.source]
        return min(_MOST, self._sure(mark) * (right + _ELSEWHERE) / (expected + _ELSEWHERE))

    def chances(self) -> list[float]:
        """How likely each token of the guess is to be accepted; descending, without those that
        hardly are."""
        reached, found = 1.0, list[float]()
        for mark in self._marks:
            reached *= self.chance(mark)
            if reached < _HOPELESS:
                break
            found.append(reached)
        return found


def mean_gain(rate: float, length: int) -> float:
    """Tokens that a guess of this length is expected to save: h + h^2 + ... + h^length."""
    return sum(rate**place for place in range(1, length + 1))


def gains(chances: Ordered[float]) -> list[float]:
    """What each guessed token of a sequence adds to the logarithm of the tokens that a step gives
    it: log((1 + c1 + ... + cn) / (1 + c1 + ... + c(n-1))); descending, as chances are."""
    tokens, found = 1.0, list[float]()
    for chance in chances:
        found.append(math.log1p(chance / tokens))
        tokens += chance
    return found


def loss(streams: int, seconds: float, cost: StepCost) -> float:
    """Tokens that all streams together lose in a step that takes so long: as many they would write
    in what it takes more than one without guesses. 0 before any step was measured."""
    alone = cost.decode(streams)
    return streams * (seconds / alone - 1) if alone else 0.0


def price(streams: int, rows: int, cost: StepCost) -> float:
    """What they lose where so many guessed rows are verified, at the measured cost."""
    return loss(streams, cost.decode(streams + rows), cost)


def best_rows(
    gained: Ordered[float],
    streams: int,
    cost: StepCost,
    max_rows: int,
    most_lost: float = math.inf,
) -> int:
    """How many of the guessed tokens, whose gains these are, best first, the coming step should
    verify.

    streams: sequences that get a row in any case, with a guess or without
    most_lost: tokens that they may lose if all guesses are wrong, see `price`
    Compares the geometric mean of all sequences' tokens per second with and without, at the
    measured cost of a step of so many rows: one that copies does not make the others wait for
    more than it gains (proportional fairness; F. Kelly, 1997). Before any step was measured all
    steps count as equally long, so that guesses are tried.
    """
    alone = cost.decode(streams) or 1.0
    best, most, gain = 0, max(math.log(WORTH) * streams, math.log(_WORTH_ALONE)), 0.0
    for count, added in enumerate(gained[: max(0, max_rows - streams)], 1):
        gain += added
        rows = streams + count
        if rows > _EVERY_NUMBER and rows % _BLOCK and count < len(gained):
            continue
        faster = gain - streams * math.log((cost.decode(rows) or 1.0) / alone)
        if faster > most and price(streams, count, cost) <= most_lost:
            best, most = count, faster
    return best
