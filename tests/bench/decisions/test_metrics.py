"""Measures of decisions, against their definitions and against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from worker.bench.decisions.metrics import (
    Predictions,
    calibration_error,
    error_by_chance,
    errors_of_means,
    measures,
    reliability,
    upper_difference,
)

THREE = Predictions.of([[0.8, 0.2], [0.5, 0.3, 0.2], [0.1, 0.9]], right=[0, 1, 0], states=[0, 1, 2])


def test_known_values() -> None:
    """Accuracy, -ln p, Brier and confidence are those of their formulas."""
    found = measures(THREE)
    assert found.questions == 3
    assert found.accuracy == pytest.approx(1 / 3)
    assert found.nll == pytest.approx(-(math.log(0.8) + math.log(0.3) + math.log(0.1)) / 3)
    brier = (0.04 + 0.04, 0.25 + 0.49 + 0.04, 0.81 + 0.81)
    assert found.brier == pytest.approx(sum(brier) / 3)
    # Three bins of one question each: |1 - 0.8|, |0 - 0.5|, |0 - 0.9|.
    assert found.ece == pytest.approx((0.2 + 0.5 + 0.9) / 3)


def test_a_probability_of_zero_is_a_large_loss() -> None:
    """An option that was called impossible costs some hundred nats, not infinitely many."""
    loss = Predictions.of([[1.0, 0.0]], [1], [0]).losses[0]
    assert 700 < loss < 710


def test_bins_have_equal_mass() -> None:
    """Bins hold as many questions each, in the order of confidence, whatever the listing."""
    rng = np.random.default_rng(3)
    confidences = rng.random(100)
    hits = (rng.random(100) < confidences).astype(float)
    bins = reliability(confidences, hits)
    assert sorted({each.count for each in bins}) == [6, 7]
    assert len(bins) == 15
    means = [each.confidence for each in bins]
    assert means == sorted(means)
    assert sum(each.count * each.accuracy for each in bins) == pytest.approx(hits.sum())
    order = rng.permutation(100)
    assert reliability(confidences[order], hits[order]) == bins


def test_calibration_error_of_one_bin() -> None:
    """One bin's error is the gap between its confidence and its accuracy."""
    bins = reliability(np.full(10, 0.7), np.array([1.0] * 4 + [0.0] * 6), count=1)
    assert calibration_error(bins) == pytest.approx(0.3)


def test_chance_makes_an_error() -> None:
    """The floor of the calibration error is above zero, and falls as questions become more."""
    few, many = error_by_chance(np.full(60, 0.7)), error_by_chance(np.full(6000, 0.7))
    assert 0.12 < few < 0.25  # four questions a bin: √(0.7 · 0.3 / 4) · √(2 / π) = 0.18
    assert 0.01 < many < 0.03


def test_errors_are_of_states() -> None:
    """Questions of one state count as one: copies of each question change no error."""
    rng = np.random.default_rng(4)
    values = rng.random(400)
    alone = errors_of_means(values[None], np.arange(400))[0]
    assert alone == pytest.approx(values.std() / math.sqrt(400), rel=0.1)
    copies = errors_of_means(np.repeat(values, 5)[None], np.repeat(np.arange(400), 5))[0]
    assert copies == pytest.approx(alone)
    assert errors_of_means(values[None], np.zeros(400, int))[0] == 0


def test_a_difference_is_of_the_same_questions() -> None:
    """What both levels find hard falls out of their difference; its upper end is above the mean."""
    rng = np.random.default_rng(6)
    theirs = 10 * rng.random(200)
    mean, upper = upper_difference(theirs + 0.1, theirs, np.arange(200))
    assert mean == pytest.approx(0.1)
    assert upper == pytest.approx(0.1)
    noise = rng.normal(size=200)
    mean, upper = upper_difference(theirs + noise, theirs, np.arange(200))
    assert upper - mean == pytest.approx(1.645 * noise.std() / math.sqrt(200), rel=0.1)
