"""Means with their errors, percentiles, how they are written, and whether two figures differ.

An error is one standard error unless a name says otherwise. Whether a difference is real is
decided at 95 % confidence with Student's t, because repetitions are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ids = NDArray[np.int32]

# Two-sided 95 % points of Student's t for 1 to 30 degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
        2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
        2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Repetitions of one measurement: `deviation` is their sample standard deviation."""

    mean: float
    deviation: float
    low: float
    high: float
    count: int
    values: tuple[float, ...]

    @property
    def error(self) -> float:
        """Standard error of the mean; 0 for a single repetition, whose error is unknown."""
        return self.deviation / math.sqrt(self.count) if self.count > 1 else 0.0


def figure(values: Sequence[float]) -> Figure:
    """The figure of at least one repetition."""
    data = np.asarray(values, np.float64)
    return Figure(
        mean=float(data.mean()),
        deviation=float(data.std(ddof=1)) if len(data) > 1 else 0.0,
        low=float(data.min()),
        high=float(data.max()),
        count=len(data),
        values=tuple(float(value) for value in data),
    )


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds; `values` to the microsecond. p95 needs 20 values and p99 100, else it is None."""

    count: int
    mean: float
    p50: float
    p95: float | None
    p99: float | None
    values: tuple[float, ...]


def latency(values: Sequence[float]) -> Latency | None:
    """The percentiles of durations in seconds; None where there are none."""
    if not values:
        return None
    data = np.asarray(values, np.float64)
    p50, p95, p99 = (percentile(data, share) for share in (0.5, 0.95, 0.99))
    return Latency(
        count=len(data),
        mean=float(data.mean()),
        p50=p50,
        p95=p95 if len(data) >= 20 else None,
        p99=p99 if len(data) >= 100 else None,
        values=tuple(round(float(value), 6) for value in data),
    )


def percentile(data: Floats, share: float) -> float:
    """Linear between neighbours at (n - 1) · share, as llama.cpp's perplexity tool takes it."""
    return float(np.quantile(data, share))


def mean_and_error(data: Floats) -> tuple[float, float]:
    """Mean and its standard error √((⟨x²⟩ - ⟨x⟩²) / (n - 1)), of independent values.

    llama.cpp, tools/perplexity: `mean_and_uncertainty`.
    """
    if len(data) < 2:
        return float(data.mean()), 0.0
    return float(data.mean()), float(data.std() / math.sqrt(len(data) - 1))


def share_and_error(hits: int, count: int) -> tuple[float, float]:
    """A share f of `count` and its binomial error √(f (1 - f) / (n - 1)).

    llama.cpp, tools/perplexity: the error of "Same top p".
    """
    share = hits / count
    return share, math.sqrt(share * (1 - share) / (count - 1)) if count > 1 else 0.0


def t95(degrees: float) -> float:
    """Two-sided 95 % point of Student's t; `degrees` of freedom are rounded down."""
    whole = max(1, int(degrees))
    return _T95[whole - 1] if whole <= len(_T95) else 1.96 + 2.45 / whole


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """`value` is b - a.

    margin   half of the 95 % interval around it; None where there are too few values for one
    is_real  zero is outside the interval, and the difference is above the caller's floor
    """

    value: float
    margin: float | None
    is_real: bool

    def as_share_of(self, base: float) -> Difference:
        """The same difference, divided by `base`; none where there is no base."""
        if not base:
            return Difference(value=0.0, margin=None, is_real=False)
        margin = None if self.margin is None else self.margin / base
        return Difference(value=self.value / base, margin=margin, is_real=self.is_real)


def difference(a: Figure, b: Figure, *, floor: float = 0.0) -> Difference:
    """mean b - mean a of two independent figures, by Welch's t-test (1947).

    floor: share of a's mean below which a difference counts as none, for what differs from one
    start of a process to the next and does not show in the repetitions of one
    """
    value = b.mean - a.mean
    if min(a.count, b.count) < 2:  # no spread, so no way to tell
        return Difference(value=value, margin=None, is_real=False)
    squares = (a.error**2, b.error**2)
    total = sum(squares)
    if total == 0.0:
        margin = 0.0
    else:
        spread = squares[0] ** 2 / (a.count - 1) + squares[1] ** 2 / (b.count - 1)
        margin = t95(total**2 / spread) * math.sqrt(total)
    return _judge(value, margin, floor * abs(a.mean))


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Mean of b - a over the same windows of text.

    The unit is the window, because tokens of one window depend on each other. Both levels saw the
    same text, so most of its variance falls out.
    """
    gaps = np.asarray(b, np.float64) - np.asarray(a, np.float64)
    value, count = float(gaps.mean()), len(gaps)
    if count < 2:
        return Difference(value=value, margin=None, is_real=False)
    error = float(gaps.std(ddof=1)) / math.sqrt(count)
    return _judge(value, t95(count - 1) * error, 0.0)


def _judge(value: float, margin: float, floor: float) -> Difference:
    is_real = abs(value) > max(margin, floor)
    return Difference(value=value, margin=margin, is_real=is_real)


def plus_minus(value: float, error: float | None, digits: int) -> str:
    """`1.234 ±0.012`; without the error where there was one value, whose error nobody knows."""
    return f"{value:.{digits}f}" + ("" if error is None else f" ±{error:.{digits}f}")


def per_s(rate: Figure) -> str:
    """`5,485 ±3%`: a rate and its relative standard error, which one repetition does not tell.

    A dash where there was no time to measure one.
    """
    if not rate.mean:
        return "–"
    digits = 0 if rate.mean >= 100 else 1 if rate.mean >= 10 else 2
    error = f" ±{rate.error / rate.mean:.0%}" if rate.count > 1 else ""
    return f"{rate.mean:,.{digits}f}{error}"


def divergence(value: float, error: float | None) -> str:
    """`0.00142 ±0.00019`, or without an error; 0 where it is less than single precision loses."""
    return "0" if abs(value) < 1e-6 else plus_minus(value, error, 5)


def milliseconds(found: Latency | None) -> str:
    """p50, p95 and p99; left out where there are too few values for them."""
    if found is None:
        return "–"
    values = [found.p50, *(value for value in (found.p95, found.p99) if value is not None)]
    return " ".join(f"{value * 1e3:.1f}" for value in values)
