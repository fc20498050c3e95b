"""How much longer than its inputs the result of a template's operation can be, at most.

Counts are characters, and `ELEMENT` for each element of a list. What grows with nothing but its
inputs has no entry here: the sandbox counts those.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

ELEMENT = 8  # bytes of a reference; to look at 2**24 elements would also take 2 s
# Of a number whose format gives no width: 1e308 with six decimals.
_NUMBER = 320
_PERCENT = re.compile(r"%(?:\([^()]*\))?[#0 +-]*(\d+|\*)?(?:\.(\d+|\*)?)?[hlL]?.", re.DOTALL)
_DIGITS = re.compile(r"\d+")

# Jinja's filters -> what their arguments, by name and with defaults, add.
FILTERS: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "batch": lambda given: ELEMENT * given["linecount"],
    "center": lambda given: given["width"],
    "indent": lambda given: _lines(given["s"]) * _width(given["width"]),
    "lipsum": lambda given: 20 * given["n"] * max(given["min"], given["max"]),
    "pprint": lambda given: size(given["value"]) * depth(given["value"]),
    # Each tag is taken out of a copy.
    "striptags": lambda given: len(str(given["value"])) * str(given["value"]).count("<"),
    "truncate": lambda given: len(given["end"]),
    "wordwrap": lambda given: len(str(given["s"])) * len(given["wrapstring"] or "\n"),
    "xmlattr": lambda given: 5 * size(given["d"]),
}


def of_method(name: str, text: str, arguments: Sequence[Any]) -> int:
    """Of a text's method, called with these."""
    match name, arguments:
        case "center" | "ljust" | "rjust" | "zfill", [int(width), *_]:
            return width
        case "expandtabs", [int(tab_size)]:
            return text.count("\t") * tab_size
        case "translate", [table]:
            return len(text) * size(table)
        case _:
            return 0


def size(value: Any, limit: int | None = None) -> int:
    """At least the characters of the value's text and the elements that it holds; the count stops
    at `limit`."""
    total, rest = 0, [value]
    while rest and (limit is None or total <= limit):
        found = rest.pop()
        if isinstance(found, str):
            total += len(found)
        elif isinstance(found, dict):
            total += ELEMENT * len(found)  # pyright: ignore[reportUnknownArgumentType]
            rest += [*found.keys(), *found.values()]  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        elif isinstance(found, list | tuple):
            total += ELEMENT * len(found)  # pyright: ignore[reportUnknownArgumentType]
            rest += found
        elif isinstance(found, int) and not isinstance(found, bool):
            total += found.bit_length() // 3 + 1
    return total


def length(value: Any) -> int:
    """The elements or characters of a value itself; one for what has none."""
    return len(value) if isinstance(value, str | list | tuple | dict) else 1  # pyright: ignore[reportUnknownArgumentType]


def depth(value: Any) -> int:
    """How many lists and objects stand in each other, one more for the value itself."""
    level, found = [value], 0
    while level:
        found += 1
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += cast("dict[Any, Any]", each).values()
            elif isinstance(each, list | tuple):
                inner += cast("list[Any]", each)
        level = inner
    return found


def of_percent(text: str, values: Any) -> int:
    total = 0
    for width, precision in _PERCENT.findall(text):
        total += _NUMBER + size(values)
        for count in (width, precision):
            # A star takes a number from the values.
            total += _largest(values) if count == "*" else int(count or 0)
    return total


def of_field(spec: str) -> int:
    """Of a value in the format `spec`."""
    return _NUMBER + sum(int(digits) for digits in _DIGITS.findall(spec))


def of_product(left: Any, right: Any) -> int:
    """Of a text or list so many times."""
    repeated, times = (right, left) if isinstance(left, int) else (left, right)
    return max(0, times) * size(repeated) if isinstance(times, int) else 0


def bits(number: float) -> int:
    """Of an integer; a float has a fixed number of them."""
    return number.bit_length() if isinstance(number, int) else 0


def _largest(values: Any) -> int:
    many = cast("tuple[Any, ...]", values) if isinstance(values, tuple) else (values,)
    return max((abs(value) for value in many if isinstance(value, int)), default=0)


def _lines(text: Any) -> int:
    return len(str(text).splitlines()) + 1


def _width(given: Any) -> int:
    return len(given) if isinstance(given, str) else given
