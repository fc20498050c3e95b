"""A level's answers to typed questions, beside the right ones."""

from __future__ import annotations

import msgspec

from worker.bench.stages import BenchStage
from worker.model.calibration import QuestionKind, ScoringMode


class DecisionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer beside the right one.

    probabilities  of the options in the order in which they were listed
    right          the place of the right one
    state          the number of its state
    """

    kind: QuestionKind
    probabilities: tuple[float, ...]
    right: int
    state: int
    label_mass: float
    orders: int
    flips: int
    mode: ScoringMode


class DecisionAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """A level's answers; seconds: from the first request to the last answer"""

    answers: tuple[DecisionAnswer, ...]
    prompt_version: str
    tokens: int
    seconds: float


DECISIONS = BenchStage("decisions", DecisionAnswers, lambda _: 60.0)
