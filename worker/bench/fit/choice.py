"""The choice of one encoding for each tensor: the least harm in all within so many bytes.

This is a knapsack with one choice of each class. It is solved by a dynamic program over bytes, in
units so that there are at most `_UNITS` of them; sizes are rounded up, so the bytes hold. What
rounding leaves is spent where it saves the most harm for a byte. With units of one byte the
choice is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_UNITS = 40_000


class EncodingOption(NamedTuple):
    """What one tensor takes and harms in an encoding."""

    encoding: str
    nbytes: int
    harm: float


def smallest(options: Sequence[Sequence[EncodingOption]]) -> int:
    """The fewest bytes that all can have."""
    return sum(min(each.nbytes for each in tensor) for tensor in options)


def choose(options: Sequence[Sequence[EncodingOption]], budget: int) -> list[EncodingOption]:
    """An option of each tensor, within `budget` bytes in all. Raises ValueError if none are."""
    spare = budget - smallest(options)
    if spare < 0:
        raise ValueError(budget)
    least = [min(each.nbytes for each in tensor) for tensor in options]
    most = sum(max(each.nbytes for each in tensor) for tensor in options) - sum(least)
    room = min(spare, most)
    unit = max(1, -(-room // _UNITS))
    units = room // unit
    best = np.zeros(units + 1)
    taken = np.zeros((len(options), units + 1), np.uint8)
    for place, tensor in enumerate(options):
        reached = np.full(units + 1, np.inf)
        for index, option in enumerate(tensor):
            width = -(-(option.nbytes - least[place]) // unit)
            if width > units:
                continue
            harms = best[: units + 1 - width] + option.harm
            is_better = harms < reached[width:]
            reached[width:][is_better] = harms[is_better]
            taken[place, width:][is_better] = index
        best = reached
    chosen, left = list[EncodingOption](), units
    for place in reversed(range(len(options))):
        option = options[place][int(taken[place, left])]
        chosen.append(option)
        left -= -(-(option.nbytes - least[place]) // unit)
    chosen.reverse()
    return _spend(options, chosen, budget - sum(option.nbytes for option in chosen))


def _spend(
    options: Sequence[Sequence[EncodingOption]], chosen: list[EncodingOption], left: int
) -> list[EncodingOption]:
    """Exchange options as long as one saves harm for the bytes that are left."""
    while True:
        gains = [
            ((now.harm - other.harm) / max(1, other.nbytes - now.nbytes), place, other)
            for place, now in enumerate(chosen)
            for other in options[place]
            if other.harm < now.harm and other.nbytes - now.nbytes <= left
        ]
        if not gains:
            return chosen
        _, place, other = max(gains, key=lambda gain: gain[0])
        left -= other.nbytes - chosen[place].nbytes
        chosen[place] = other
