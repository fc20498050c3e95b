"""Errors and differences, against their definitions."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from worker.bench.figures import (
    difference,
    divergence,
    figure,
    latency,
    mean_and_error,
    paired_difference,
    per_s,
    plus_minus,
    share_and_error,
    t95,
)

RNG = np.random.default_rng(1)


def test_a_figure_keeps_its_repetitions() -> None:
    """Mean, sample deviation, ends and error are of the values that it carries."""
    found = figure([4.0, 5.0, 9.0])
    assert found.values == (4.0, 5.0, 9.0)
    assert (found.low, found.high, found.count) == (4.0, 9.0, 3)
    assert found.mean == pytest.approx(6)
    assert found.deviation == pytest.approx(statistics.stdev(found.values))
    assert found.error == pytest.approx(found.deviation / math.sqrt(3))
    assert figure([2.0]).error == 0


def test_percentiles_need_values_enough() -> None:
    """No p95 of fewer than 20 and no p99 of fewer than 100 values; none at all of none."""
    assert latency([]) is None
    few, some, many = (latency([i / 1e3 for i in range(n)]) for n in (19, 20, 100))
    assert few is not None
    assert some is not None
    assert many is not None
    assert (few.p95, few.p99) == (None, None)
    assert some.p95 == pytest.approx(0.95 * 0.019)
    assert some.p99 is None
    assert many.p99 == pytest.approx(0.99 * 0.099)
    assert len(many.values) == many.count == 100


def test_the_error_of_a_mean_is_llama_cpp_s() -> None:
    """√((⟨x²⟩ - ⟨x⟩²) / (n - 1)), which for independent values is s / √n."""
    data = RNG.normal(3, 2, 1000)
    mean, error = mean_and_error(data)
    assert mean == pytest.approx(data.mean())
    assert error == pytest.approx(math.sqrt(((data**2).mean() - mean**2) / 999))
    assert error == pytest.approx(data.std(ddof=1) / math.sqrt(1000))


def test_the_error_of_a_share_is_binomial() -> None:
    """√(f (1 - f) / (n - 1))."""
    share, error = share_and_error(30, 101)
    assert share == pytest.approx(30 / 101)
    assert error == pytest.approx(math.sqrt(share * (1 - share) / 100))


@pytest.mark.parametrize(("degrees", "point"), [(1, 12.706), (4.9, 2.776), (30, 2.042), (60, 2.0)])
def test_student_s_points(degrees: float, point: float) -> None:
    """The table's values, whole degrees rounded down, and an approximation beyond it."""
    assert t95(degrees) == pytest.approx(point, abs=2e-3)


def test_welch_s_interval() -> None:
    """The textbook's degrees and margin; real where zero is outside of it."""
    a, b = figure([10.0, 12.0, 11.0, 13.0]), figure([20.0, 21.0, 19.0])
    found = difference(a, b)
    spread = a.error**2 + b.error**2
    degrees = spread**2 / (a.error**4 / 3 + b.error**4 / 2)
    assert found.value == pytest.approx(8.5)
    assert found.margin == pytest.approx(t95(degrees) * math.sqrt(spread))
    assert found.is_real
    assert not difference(a, figure([10.5, 12.5, 11.5, 13.5])).is_real


def test_one_repetition_tells_no_difference() -> None:
    """Without a spread nothing is real, however far apart."""
    found = difference(figure([1.0]), figure([100.0, 101.0]))
    assert not found.is_real
    assert found.margin is None


def test_a_floor_makes_small_differences_none() -> None:
    """A difference outside of the errors but below the floor is none."""
    a, b = figure([100.0, 100.1, 99.9]), figure([102.0, 102.1, 101.9])
    assert difference(a, b).is_real
    assert not difference(a, b, floor=0.03).is_real


def test_pairing_takes_out_what_windows_share() -> None:
    """A small shift shows between windows that differ much from each other."""
    base = RNG.normal(1.0, 0.5, 40)
    shifted = base + 0.01 + RNG.normal(0, 0.005, 40)
    found = paired_difference(list(base), list(shifted))
    assert found.is_real
    assert found.value == pytest.approx((shifted - base).mean())
    plain = (shifted - base).std(ddof=1) / math.sqrt(40)
    assert found.margin == pytest.approx(t95(39) * plain)
    assert not difference(figure(list(base)), figure(list(shifted))).is_real
    assert not paired_difference(list(base), list(base)).is_real


def test_what_is_not_known_is_not_written() -> None:
    """One value has no error, and no time no speed: neither is written as a zero."""
    assert per_s(figure([20.0])) == "20.0"
    assert per_s(figure([0.0])) == "–"
    assert divergence(0.00142, None) == "0.00142"
    assert plus_minus(1.0, 0.0, 2) == "1.00 ±0.00"
    assert not difference(figure([0.0]), figure([1.0, 2.0])).as_share_of(0.0).is_real
