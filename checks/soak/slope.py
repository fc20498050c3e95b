"""How fast something grows, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import msgspec
import numpy as np

CONFIDENCE = 0.95
MIN_SAMPLES = 8


class Slope(msgspec.Struct, frozen=True):
    """Growth in units of y for each of x; the true one lies between `low` and `high` with 95 %."""

    middle: float
    low: float
    high: float

    @property
    def least_shown(self) -> float:
        """The smallest growth that such samples tell from none."""
        return (self.high - self.low) / 2


def slope_of(x: Sequence[float], y: Sequence[float]) -> Slope | None:
    """Theil's and Sen's slope with Sen's limits (1968); None: too few samples.

    The median of the slopes of all pairs that are not at one place: up to 29 % of the samples may
    lie anywhere. Neighbours that lie alike make the limits wider, as in Hamed and Rao (1998) with
    the first neighbour only: the variance of Kendall's S grows by (1 + r) / (1 - r).
    What is left around a line that was fitted to n samples has an r that is too small by about
    (2 + 4 r) / n, which few samples need to know; the tests count how often the limits are wrong.
    """
    n = len(x)
    if n < MIN_SAMPLES:
        return None
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    first, second = np.triu_indices(n, 1)
    apart = xs[second] != xs[first]
    first, second = first[apart], second[apart]
    if not len(first):
        return None
    slopes = np.sort((ys[second] - ys[first]) / (xs[second] - xs[first]))
    middle = float(np.median(slopes))
    rest = ys - middle * xs
    rest -= np.median(rest)
    spread = float(rest @ rest)
    r = float(rest[1:] @ rest[:-1]) / spread if spread else 0.0
    r = min(max((n * r + 2) / (n - 4), 0.0), 0.99)
    variance = n * (n - 1) * (2 * n + 5) / 18 * (1 + r) / (1 - r)
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt(variance)
    # Where neighbours lie so alike that the limits are beyond all slopes: the least and the most.
    low = max(int((len(slopes) - reach) / 2), 0)
    high = min(math.ceil((len(slopes) + reach) / 2), len(slopes) - 1)
    return Slope(middle, float(slopes[low]), float(slopes[high]))
