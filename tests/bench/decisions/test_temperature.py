"""Temperatures are found again, and never fitted on what they are reported on."""

from __future__ import annotations

import numpy as np
import pytest

from worker.bench.decisions.metrics import Predictions, measures
from worker.bench.decisions.temperature import LEAST_QUESTIONS, apply, fit, halves, temperatures
from worker.model.calibration import QuestionKind

RNG = np.random.default_rng(8)


def predictions(temperature: float, count: int = 4000, options: int = 3) -> Predictions:
    """Answers drawn from true probabilities, told with log-probabilities times `temperature`."""
    logs = RNG.normal(size=(count, options))
    true = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    right = [int(RNG.choice(options, p=row)) for row in true]
    told = np.exp(logs * temperature)
    told /= told.sum(axis=1, keepdims=True)
    return Predictions.of(told.tolist(), right, list(range(count)))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_a_temperature_is_found(temperature: float) -> None:
    """Log-probabilities that are so many times too large have this temperature."""
    assert fit(predictions(temperature)) == pytest.approx(temperature, rel=0.12)


def test_the_fit_is_the_least_loss() -> None:
    """No temperature beside the fitted one makes -ln p of the right options less."""
    found = predictions(2.0, 300)
    best = fit(found)
    least = apply(found, best).losses.mean()
    for other in (best * 0.98, best * 1.02):
        assert apply(found, other).losses.mean() > least


def test_a_temperature_changes_no_choice() -> None:
    """Accuracy is the same with any temperature, and 1 changes nothing."""
    found = predictions(2.0, 300)
    for temperature in (0.1, 3.7, 10.0):
        assert (apply(found, temperature).hits == found.hits).all()
    same = apply(found, 1.0)
    assert np.allclose(np.stack(same.rows), np.stack(found.rows))


def test_a_temperature_is_bounded() -> None:
    """Answers that are all right, or worse than chance, have a bound and not infinity."""
    rows = [[0.6, 0.4]] * 40
    assert fit(Predictions.of(rows, [0] * 40, range(40))) == 0.1
    assert fit(Predictions.of(rows, [1] * 40, range(40))) == 10.0


def test_halves_share_no_state() -> None:
    """Each state's questions are all in one half; both halves together are all questions."""
    states = np.repeat(np.arange(50), 4)
    first, second = halves(states)
    assert not set(states[first]) & set(states[second])
    assert sorted([*first, *second]) == list(range(200))
    assert len(first) == len(second)


def test_each_kind_has_its_own() -> None:
    """Temperatures are by kind, reported on other questions; too few questions have none."""
    cool, warm = predictions(1.0, 1200), predictions(2.5, 1200)
    few = predictions(1.0, LEAST_QUESTIONS)
    rows = [row.tolist() for each in (cool, warm, few) for row in each.rows]
    right = np.concatenate([cool.right, warm.right, few.right]).tolist()
    counts: dict[QuestionKind, int] = {"statement": 1200, "choice": 1200, "scale": LEAST_QUESTIONS}
    kinds: list[QuestionKind] = [kind for kind, count in counts.items() for _ in range(count)]
    found = Predictions.of(rows, right, range(len(rows)))
    fitted, questions, held_out = temperatures(found, kinds)
    assert set(fitted) == {"statement", "choice"}
    assert fitted["statement"] == pytest.approx(1.0, rel=0.2)
    assert fitted["choice"] == pytest.approx(2.5, rel=0.2)
    for kind in ("statement", "choice"):
        assert questions[kind] + held_out[kind].questions == 1200
    before, after = held_out["choice"].nll
    assert after < before
    _, second = halves(found.states)
    others = found.some([place for place in second if kinds[place] == "choice"])
    assert before == pytest.approx(measures(others).nll)
