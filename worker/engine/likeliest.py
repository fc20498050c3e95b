"""Few of many: sums, maxima and the largest values of a row of logits, by wide passes.

A row is cut into pieces of `width` values, and the pieces are combined value by value, as SIMD
does. So value j of the result stands for the column row[j::width].
"""

from __future__ import annotations

import numpy as np

# Columns for sums. A column of 262,144 / 2,048 float32 values is summed to 1e-6.
SUMS = 2048
_MAXIMA = 1024
# Arrays of more than 128 KiB are new pages each time: to touch them costs more than to reckon.
_TESTED = 1 << 16
_WEIGHED = 1 << 14


def fold(values: np.ndarray, combine: np.ufunc, width: int) -> np.ndarray:
    """Each column combined into one value; [width], or all values where there are fewer."""
    width = min(width, len(values))
    whole = len(values) // width * width
    columns = combine.reduce(values[:whole].reshape(-1, width), axis=0)
    rest = len(values) - whole
    if rest:
        combine(columns[:rest], values[whole:], out=columns[:rest])
    return columns


def likeliest(logits: np.ndarray, count: int) -> np.ndarray:
    """Ids in order, among them the `count` largest logits and all that equal the last of these.

    The maxima of `count` columns reach the count-th largest maximum. So at least `count` logits do,
    and what does not is none of the largest. All ids where `count` is a large part of them.
    logits: float32 [vocab_size]; ids are int64.
    """
    width = max(_MAXIMA, 1 << (4 * count).bit_length())
    if width < len(logits):
        best = fold(logits, np.maximum, width)
        bound = np.partition(best, width - count)[width - count]
        if bound > -np.inf:  # neither is NaN
            starts = range(0, len(logits), _TESTED)
            found = [np.flatnonzero(logits[at : at + _TESTED] >= bound) + at for at in starts]
            return np.concatenate(found)
    return np.arange(len(logits))


def log_sum(logits: np.ndarray) -> float:
    """ln sum exp(logits), good to 1e-6: exp in float32, and sums of few values."""
    largest = logits.max()
    sums = np.zeros(min(_WEIGHED, len(logits)), np.float32)
    weights = np.empty_like(sums)
    for at in range(0, len(logits), len(sums)):
        part = logits[at : at + len(sums)]
        some = np.subtract(part, largest, out=weights[: len(part)])
        np.exp(some, out=some)
        sums[: len(part)] += some
    return float(largest) + float(np.log(sums.sum(dtype=np.float64)))
