"""What both APIs tell of a reading: the likeliest option, how sure it is, how it was read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from worker.api.decisions.question import AnswerReading, TypedQuestion


class AppliedCalibration(msgspec.Struct):
    """temperature: by which log-probabilities were divided"""

    temperature: float


class Diagnostics(msgspec.Struct):
    """How a question was read.

    label_mass      probability that the model wrote any of the options, over its vocabulary
    prompt_version  of the prompt's layout, or the family of a model that brings its own
    orders          in how many orders the options were shown
    flips           in how many of these another option was the likeliest
    mode            letters or texts
    calibration     what was measured for this file; null: there is none
    """

    label_mass: float
    prompt_version: str
    orders: int
    flips: int
    mode: str
    calibration: AppliedCalibration | None


def diagnostics_of(reading: AnswerReading) -> Diagnostics:
    temperature = reading.temperature
    return Diagnostics(
        label_mass=reading.label_mass,
        prompt_version=reading.prompt_version,
        orders=reading.orders,
        flips=reading.flips,
        mode=reading.mode,
        calibration=None if temperature is None else AppliedCalibration(temperature),
    )


def likeliest(question: TypedQuestion, reading: AnswerReading) -> int:
    """The place of the option with the highest probability. Among equals the text decides: the
    order in which options are listed changes nothing."""
    places = range(len(question.options))
    return min(places, key=lambda at: (-reading.probabilities[at], question.options[at].text))


def choice_confidence(probabilities: Sequence[float]) -> float:
    """0 where all options are alike, 1 where one is certain."""
    count = len(probabilities)
    return 1.0 if count == 1 else max(0.0, (count * max(probabilities) - 1) / (count - 1))


def expected_level(probabilities: Sequence[float]) -> float:
    """The mean of the levels' numbers."""
    return sum(level * each for level, each in enumerate(probabilities))


def scale_confidence(probabilities: Sequence[float]) -> float:
    """How near to the likeliest level the others are, beside levels that are equally likely."""
    levels = range(count := len(probabilities))
    if count == 1:
        return 1.0
    mode = max(levels, key=lambda level: probabilities[level])
    spread = sum(each * abs(level - mode) for level, each in enumerate(probabilities))
    widest = sum(abs(level - (count - 1) / 2) for level in levels) / count
    return max(0.0, 1 - spread / widest)
