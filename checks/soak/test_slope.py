"""Slopes of samples that were made up, where the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from checks.soak.slope import MIN_SAMPLES, slope_of


def noise(count: int, seed: int, alike: float = 0.0) -> np.ndarray:
    """Of variance 1; `alike`: correlation with the neighbour."""
    draw = np.random.default_rng(seed)
    found = [draw.normal()]
    for _ in range(count - 1):
        found.append(alike * found[-1] + math.sqrt(1 - alike**2) * draw.normal())
    return np.array(found)


@pytest.mark.parametrize("true", [0.0, 1.0, -2.5, 1000.0])
def test_a_line(true: float) -> None:
    """Without noise the slope and its limits are the line's."""
    x = [0.1 * number for number in range(20)]
    slope = slope_of(x, [3 + true * value for value in x])
    assert slope is not None
    assert (slope.low, slope.middle, slope.high) == pytest.approx((true,) * 3)


def test_too_few() -> None:
    """Below MIN_SAMPLES nothing is said; a few noisy ones have wide limits."""
    x = list(range(MIN_SAMPLES))
    assert slope_of(x[:-1], x[:-1]) is None
    slope = slope_of(x, list(noise(len(x), 5)))
    assert slope is not None
    assert slope.low < 0 < slope.high


@pytest.mark.parametrize("count", [10, 120])
@pytest.mark.parametrize("alike", [0.0, 0.6, 0.9])
def test_the_limits_hold_the_truth(alike: float, count: int) -> None:
    """Of many runs without growth few are told to grow, also where neighbours lie alike."""
    x = np.arange(float(count))
    told = 0
    for seed in range(100):
        slope = slope_of(list(x), list(noise(len(x), seed, alike)))
        assert slope is not None
        told += slope.low > 0
    # 2.5 of 100 are expected, and where neighbours lie alike the formula is an approximation.
    assert told <= 10


def test_samples_at_one_place() -> None:
    """Pairs at one place have no slope; all at one place is too few."""
    y = list(range(10))
    assert slope_of([1.0] * 10, y) is None
    slope = slope_of(
        [number // 2 for number in range(20)], [number // 2 * 3 for number in range(20)]
    )
    assert slope is not None
    assert slope.middle == 3


def test_growth_in_noise_is_found() -> None:
    """A growth of thrice what such samples can show is told in nearly each run."""
    x = np.arange(120.0)
    quiet = slope_of(list(x), list(noise(len(x), 1, 0.6)))
    assert quiet is not None
    found = 0
    for seed in range(50):
        slope = slope_of(list(x), list(noise(len(x), seed, 0.6) + 3 * quiet.least_shown * x))
        assert slope is not None
        found += slope.low > 0
    assert found >= 45


def test_outliers_do_not_count() -> None:
    """A fifth of the samples lie far off, all at the end."""
    x = np.arange(100.0)
    y = noise(100, 2) * 0.01 + 0.5 * x
    y[80::2] += 1000
    slope = slope_of(list(x), list(y))
    assert slope is not None
    assert slope.middle == pytest.approx(0.5, abs=0.2)
