"""How many times one thing is another, on a machine that changes its speed within seconds.

Both are measured in turns, so each quotient is of two neighbours in time, and the median of the
quotients counts: what disturbs one pair does not move it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

_FEWEST = 6  # of fewer values not even the least and the greatest enclose the median with 95 %


class Quotient(NamedTuple):
    """The median of the quotients; the true one lies between `low` and `high` with 95 %.

    pairs  how many; of few of them `low` and `high` are the least and the greatest
    """

    middle: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        """`0.983 (0.971 to 0.994)`, and without the brackets where the pairs are few."""
        around = f" ({self.low:.3f} to {self.high:.3f})" if self.pairs >= _FEWEST else ""
        return f"{self.middle:.3f}{around}"


def quotient(above: Sequence[float], below: Sequence[float]) -> Quotient:
    """Of pairs that were measured side by side; at least one.

    The interval is that of a sign test: the k-th value from either end, k the normal approximation
    of the binomial's 2.5 % point.
    """
    found = sorted(a / max(b, 1e-9) for a, b in zip(above, below, strict=True))
    count = len(found)
    aside = 1.96 * math.sqrt(count) / 2
    first = max(0, math.floor(count / 2 - aside))
    return Quotient(statistics.median(found), found[first], found[count - 1 - first], count)
