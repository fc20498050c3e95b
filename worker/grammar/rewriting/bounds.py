"""Bounds of numbers, as far as native code computes with them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, cast

import msgspec

from worker.grammar.keywords import Schema
from worker.limits import EXACT, INTEGER, MULTIPLES

_LOWEST = -INTEGER.most + 1023  # the next float64 above -2^63, which native code cannot negate


def bound(key: str, value: Any, *, is_integer: bool) -> tuple[str, float] | None:
    """A keyword and a value that hold what the client's say, or somewhat more; None: none do.

    Native code takes float64 for bounds and follows numbers to 2^53, integers to int64. A bound
    outside becomes the last one inside. is_integer: all numbers here are whole
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    if abs(value) < EXACT.most or (abs(value) == EXACT.most and not is_integer):
        return key, value
    sign = 1 if key.endswith("aximum") else -1
    if not is_integer:
        return (key, sign * EXACT.most) if value * sign > 0 else None
    if value * sign < -INTEGER.most:
        return None
    side = "maximum" if sign > 0 else "minimum"
    if value * sign > INTEGER.most:
        return side, INTEGER.most if sign > 0 else _LOWEST
    wanted = int(value) - sign * key.startswith("exclusive")
    rounded = float(wanted)
    if (int(rounded) - wanted) * sign > 0 and wanted != INTEGER.most:
        rounded = math.nextafter(rounded, -sign * math.inf)
    return side, max(int(rounded), _LOWEST)


def close_bounds(out: Schema) -> None:
    """Native code takes no bound beyond 2^53 that has no other one on the far side."""
    if out.get("minimum", 0) > EXACT.most:
        out.setdefault("maximum", INTEGER.most)
    if out.get("maximum", 0) < -EXACT.most:
        out.setdefault("minimum", _LOWEST)


class WholeNumber(msgspec.Struct, frozen=True):
    """A range of integers between two float64, in which the wanted one is.

    divisor: such that it is the only multiple in the range; None: there is none
    """

    low: int
    high: int
    divisor: int | None

    @property
    def schema(self) -> Schema:
        """Of the range, or of the number alone."""
        only = {} if self.divisor is None else {"multipleOf": self.divisor}
        return {"type": "integer", "minimum": self.low, "maximum": self.high, **only}


def whole(value: Any, *, seeks: bool) -> WholeNumber | None:
    """For an int64 that native code would round; None: it would not, or could not follow it.

    seeks: look for a divisor, in up to 0.2 ms
    """
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    if is_exact(value) or not _LOWEST < value < INTEGER.most:
        return None
    nearest = float(value)
    other = math.nextafter(nearest, math.inf if nearest < value else -math.inf)
    low, high = sorted((int(nearest), int(other)))
    high = min(high, INTEGER.most)
    widest = max(value - low, high - value)
    divisors = (each for each in range(widest + 1, MULTIPLES.most) if value % each == 0)
    return WholeNumber(low, high, next(divisors, None) if seeks else None)


def is_exact(value: Any) -> bool:
    """Whether native code writes each number in it as it is."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, int | float) and not -EXACT.most <= item <= EXACT.most:
            is_whole = isinstance(item, int) and _LOWEST <= item < INTEGER.most
            if item != INTEGER.most and not (is_whole and int(float(item)) == item):
                return False
        if isinstance(item, dict):
            stack += cast("Schema", item).values()
        elif isinstance(item, list):
            stack += cast("list[Any]", item)
    return True


def digits_of(value: float) -> float:
    """A number without its point: 1250 for 12.50."""
    if not -INTEGER.most <= value <= INTEGER.most:
        return math.inf
    _, digits, exponent = Decimal(str(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    return int("".join(map(str, digits))) * 10 ** max(0, min(exponent, 20))
