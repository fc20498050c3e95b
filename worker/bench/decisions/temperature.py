"""The temperature that fits a model's probabilities to its right answers (Guo et al. 2017)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from worker.bench.decisions.metrics import Predictions, measures
from worker.bench.figures import Floats
from worker.model.calibration import KINDS, Fit, Kind

LEAST_QUESTIONS = 30  # of a half, for one temperature
_LOWEST, _HIGHEST = 0.1, 10.0
_HALVINGS = 60
_SEED = 23
_LEAST = float(np.finfo(np.float64).tiny)


def fit(found: Predictions) -> float:
    """The temperature that makes -ln p of the right options least, 0.1 to 10.

    Their sum is convex in β = 1/T, so its slope Σ (⟨l⟩ - l_right) is halved to zero; l are the
    log-probabilities, ⟨l⟩ their mean under softmax(β l).
    """
    logs = [np.log(np.maximum(row, _LEAST)) for row in found.rows]

    def slope(beta: float) -> float:
        total = 0.0
        for row, right in zip(logs, found.right, strict=True):
            total += float(_softmax(beta * row) @ row) - row[right]
        return total

    low, high = 1 / _HIGHEST, 1 / _LOWEST
    if slope(low) >= 0:
        return _HIGHEST
    if slope(high) <= 0:
        return _LOWEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return 2 / (low + high)


def apply(found: Predictions, temperature: float) -> Predictions:
    """The same predictions with their log-probabilities divided by it."""
    rows = [_softmax(np.log(np.maximum(row, _LEAST)) / temperature) for row in found.rows]
    return Predictions(tuple(rows), found.right, found.states)


def halves(states: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of the questions to fit on, and of those to report on; a state's stay together."""
    order = [int(state) for state in np.unique(states)]
    random.Random(_SEED).shuffle(order)  # noqa: S311  (no secrets)
    first = np.isin(states, order[::2])
    return np.flatnonzero(first), np.flatnonzero(~first)


def temperatures(
    found: Predictions, kinds: Sequence[Kind]
) -> tuple[dict[Kind, float], dict[Kind, int], dict[Kind, Fit]]:
    """By kind: the temperature, the number of questions that it was fitted on, and what it changes
    on the others. A kind with too few questions has none.

    kinds: of each question, as `group_of` tells
    """
    fitted: dict[Kind, float] = {}
    questions: dict[Kind, int] = {}
    held_out: dict[Kind, Fit] = {}
    first, second = halves(found.states)
    for kind in KINDS:
        ours, others = (
            found.some([place for place in half if kinds[place] == kind])
            for half in (first, second)
        )
        if min(len(ours.rows), len(others.rows)) < LEAST_QUESTIONS:
            continue
        fitted[kind] = fit(ours)
        questions[kind] = len(ours.rows)
        before, after = measures(others), measures(apply(others, fitted[kind]))
        held_out[kind] = Fit(
            questions=before.questions,
            accuracy=before.accuracy,
            nll=(before.nll, after.nll),
            ece=(before.ece, after.ece),
        )
    return fitted, questions, held_out


def _softmax(values: Floats) -> Floats:
    powers = np.exp(values - values.max())
    return powers / powers.sum()
