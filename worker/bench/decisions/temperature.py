"""The temperature that fits a model's probabilities to its right answers (Guo et al. 2017)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from worker.bench.decisions.metrics import LEAST, Predictions, measures
from worker.bench.figures import Floats
from worker.model.calibration import KINDS, QuestionKind, TemperatureFit

LEAST_QUESTIONS = 30  # of a half, for one temperature
_LOWEST, _HIGHEST = 0.1, 10.0
_HALVINGS = 60
_SEED = 23
_ABSENT = -1e9  # the log-probability of an option that a question does not have


def fit(found: Predictions) -> float:
    """The temperature that makes -ln p of the right options least, 0.1 to 10.

    Their sum is convex in β = 1/T, so its slope Σ (⟨l⟩ - l_right) is halved to zero; l are the
    log-probabilities, ⟨l⟩ their mean under softmax(β l).
    """
    logs = np.full((len(found.rows), max(map(len, found.rows))), _ABSENT)
    for place, row in enumerate(found.rows):
        logs[place, : len(row)] = _logs(row)
    told = float(logs[np.arange(len(logs)), found.right].sum())

    def slope(beta: float) -> float:
        powers = np.exp(beta * (logs - logs.max(axis=1, keepdims=True)))
        means = (powers * logs).sum(axis=1) / powers.sum(axis=1)
        return float(means.sum()) - told

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
    rows = tuple(_softmax(_logs(row) / temperature) for row in found.rows)
    return Predictions(rows, found.right, found.states)


def cross_fitted(found: Predictions, kinds: Sequence[QuestionKind | None]) -> Predictions:
    """Each half of the questions with the temperatures that were fitted on the other half; a kind
    with too few questions as it is."""
    rows = list(found.rows)
    first, second = halves(found.states)
    for ours, others in ((first, second), (second, first)):
        for kind in KINDS:
            wanted = [place for place in others if kinds[place] == kind]
            known = [place for place in ours if kinds[place] == kind]
            if len(known) >= LEAST_QUESTIONS:
                made = apply(found.some(wanted), fit(found.some(known)))
                for place, row in zip(wanted, made.rows, strict=True):
                    rows[place] = row
    return Predictions(tuple(rows), found.right, found.states)


def halves(states: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of the questions to fit on, and of those to report on; a state's stay together."""
    order = [int(state) for state in np.unique(states)]
    random.Random(_SEED).shuffle(order)  # noqa: S311  (no secrets)
    first = np.isin(states, order[::2])
    return np.flatnonzero(first), np.flatnonzero(~first)


def temperatures(
    found: Predictions, kinds: Sequence[QuestionKind | None]
) -> tuple[dict[QuestionKind, float], dict[QuestionKind, int], dict[QuestionKind, TemperatureFit]]:
    """By kind: the temperature, the number of questions that it was fitted on, and what it changes
    on the others. A kind with too few questions has none.

    kinds: of each question, as `group_of` tells; None: it is left out
    """
    fitted: dict[QuestionKind, float] = {}
    questions: dict[QuestionKind, int] = {}
    held_out: dict[QuestionKind, TemperatureFit] = {}
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
        held_out[kind] = TemperatureFit(
            questions=before.questions,
            accuracy=before.accuracy,
            nll=(before.nll, after.nll),
            ece=(before.ece, after.ece),
        )
    return fitted, questions, held_out


def _logs(row: Floats) -> Floats:
    return np.log(np.maximum(row, LEAST))


def _softmax(values: Floats) -> Floats:
    powers = np.exp(values - values.max())
    return powers / powers.sum()
