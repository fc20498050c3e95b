"""Measures of probabilities beside right answers; pure functions of arrays.

A prediction is a row of probabilities of a question's options and the index of the right one.
Questions of one state depend on each other, so errors are of states: these are drawn anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from worker.bench.figures import Floats

BINS = 15
_DRAWS = 1000
_SEED = 5
LEAST = float(np.finfo(np.float64).tiny)  # a probability of 0 has no logarithm


class Predictions(msgspec.Struct, frozen=True):
    """Questions one after the other.

    rows    of each question the options' probabilities
    right   of each the index of the right option
    states  of each the number of its state
    """

    rows: tuple[Floats, ...]
    right: NDArray[np.int64]
    states: NDArray[np.int64]

    @classmethod
    def of(
        cls, rows: Sequence[Sequence[float]], right: Sequence[int], states: Sequence[int]
    ) -> Predictions:
        return cls(
            tuple(np.asarray(row, np.float64) for row in rows),
            np.asarray(right, np.int64),
            np.asarray(states, np.int64),
        )

    def some(self, which: Sequence[int] | NDArray[np.int64]) -> Predictions:
        """The questions at these places."""
        places = [int(place) for place in which]
        rows = tuple(self.rows[place] for place in places)
        return Predictions(rows, self.right[places], self.states[places])

    @property
    def hits(self) -> Floats:
        """1 for each question whose likeliest option is right, else 0; of equals the first."""
        found = [
            int(row.argmax()) == right for row, right in zip(self.rows, self.right, strict=True)
        ]
        return np.array(found, np.float64)

    @property
    def confidences(self) -> Floats:
        """The probability of each question's likeliest option."""
        return np.array([row.max() for row in self.rows])

    @property
    def losses(self) -> Floats:
        """-ln p of each question's right option, nats."""
        chosen = [row[right] for row, right in zip(self.rows, self.right, strict=True)]
        return -np.log(np.maximum(np.array(chosen), LEAST))

    @property
    def squares(self) -> Floats:
        """Σ (pᵢ - yᵢ)² of each question, y being 1 for the right option and else 0 (Brier 1950)."""
        found: list[float] = []
        for row, right in zip(self.rows, self.right, strict=True):
            gap = row.copy()
            gap[right] -= 1.0
            found.append(float(gap @ gap))
        return np.array(found)


class Bin(msgspec.Struct, frozen=True):
    """Some questions of like confidence: the means of their confidences and hits."""

    count: int
    confidence: float
    accuracy: float


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """Of some questions.

    nll        mean -ln p of the right option, nats
    ece        expected calibration error, bins of equal mass
    ece_floor  that a perfectly calibrated model with these confidences has by chance, the mean
    …_error    standard errors, states drawn anew
    """

    questions: int
    accuracy: float
    accuracy_error: float
    nll: float
    nll_error: float
    brier: float
    brier_error: float
    ece: float
    ece_floor: float
    bins: tuple[Bin, ...]


def measures(found: Predictions) -> Measures:
    """Of at least one question."""
    hits, losses, squares = found.hits, found.losses, found.squares
    errors = errors_of_means(np.stack([hits, losses, squares]), found.states)
    confidences = found.confidences
    bins = reliability(confidences, hits)
    return Measures(
        questions=len(hits),
        accuracy=float(hits.mean()),
        accuracy_error=float(errors[0]),
        nll=float(losses.mean()),
        nll_error=float(errors[1]),
        brier=float(squares.mean()),
        brier_error=float(errors[2]),
        ece=calibration_error(bins),
        ece_floor=error_by_chance(confidences),
        bins=bins,
    )


def reliability(confidences: Floats, hits: Floats, count: int = BINS) -> tuple[Bin, ...]:
    """At most `count` bins of equal mass, the least confident questions first.

    Questions of one confidence stay in the order in which they were asked.
    """
    order = np.argsort(confidences, kind="stable")
    return tuple(
        Bin(len(part), float(confidences[part].mean()), float(hits[part].mean()))
        for part in np.array_split(order, min(count, len(order)))
    )


def calibration_error(bins: Sequence[Bin]) -> float:
    """Σ share · |accuracy - confidence| (Naeini et al. 2015)."""
    total = sum(each.count for each in bins)
    return sum(each.count * abs(each.accuracy - each.confidence) for each in bins) / total


def error_by_chance(confidences: Floats, draws: int = 200) -> float:
    """The mean calibration error if each answer is right with just its confidence."""
    ordered = np.sort(confidences)
    hits = np.random.default_rng(_SEED).random((draws, len(ordered))) < ordered
    parts = np.array_split(np.arange(len(ordered)), min(BINS, len(ordered)))
    starts = [int(part[0]) for part in parts]
    gaps = np.add.reduceat(hits - ordered, starts, axis=1)
    return float((np.abs(gaps).sum(axis=1) / len(ordered)).mean())


def errors_of_means(values: Floats, states: NDArray[np.int64]) -> Floats:
    """Standard errors of the means of rows of `values` [measures, questions], by the bootstrap
    (Efron 1979) over states; 0 of a single state, whose error is unknown."""
    _, which = np.unique(states, return_inverse=True)
    count = int(which.max()) + 1
    if count < 2:
        return np.zeros(len(values))
    sums = np.stack([np.bincount(which, row, count) for row in values])
    sizes = np.bincount(which, minlength=count).astype(np.float64)
    drawn = np.random.default_rng(_SEED).integers(0, count, (_DRAWS, count))
    means = sums[:, drawn].sum(axis=2) / sizes[drawn].sum(axis=1)
    return means.std(axis=1, ddof=1)


def upper_difference(
    ours: Floats, theirs: Floats, states: NDArray[np.int64]
) -> tuple[float, float]:
    """The mean of ours - theirs on the same questions, and the end above which it is in 5 % of
    draws of states: with 95 % confidence the difference is below."""
    gaps = ours - theirs
    error = float(errors_of_means(gaps[None], states)[0])
    return float(gaps.mean()), float(gaps.mean() + 1.645 * error)
