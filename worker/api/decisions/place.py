"""Where something stands in a body, and which name in it stands there twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, Self, cast

from worker.errors import RequestError

_STEP = re.compile(r"[^.\[\]]+")
_SHOWN = 200


class BodyPlace(str):
    """`questions.a.b.criteria[1]`, as errors name it, with its steps: a name may hold dots."""

    __slots__ = ("steps",)
    steps: tuple[str | int, ...]

    def __new__(cls, *steps: str | int) -> Self:
        parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps]
        place = super().__new__(cls, "".join(parts).removeprefix("."))
        place.steps = steps
        return place

    def at(self, *steps: str | int) -> BodyPlace:
        """What stands inside."""
        return BodyPlace(*self.steps, *steps)

    def inside(self, text: str) -> BodyPlace:
        """The same for a text like `.criteria[1]`."""
        return self.at(*steps_of(text))


def steps_of(text: str) -> tuple[str | int, ...]:
    """`.criteria[1]` -> criteria, 1; of a BodyPlace its own."""
    if isinstance(text, BodyPlace):
        return text.steps
    return tuple(int(step) if step.isdecimal() else step for step in _STEP.findall(text))


def check_names(data: bytes | bytearray) -> None:
    """Raise RequestError for a name that stands twice in one object: a question or an option would
    be lost. data: JSON that was decoded already, with whatever else is wrong"""
    try:
        try:
            _read(data, _check)
        except _TwiceError:
            place = next(_twice(_read(data, _Pairs)))
            raise RequestError(
                f"{place[:_SHOWN]} is there twice, and one of both would be lost.",
                param=place,
                hint="Give each entry of an object its own name.",
            ) from None
    except RecursionError:
        raise RequestError("The body holds too many values in each other.") from None


class _TwiceError(Exception):
    pass


class _Pairs(NamedTuple):
    """An object as it was written."""

    pairs: list[tuple[str, Any]]


def _read(data: bytes | bytearray, object_of: Any) -> Any:
    """Numbers stay texts: nobody asks for them, and long ones are refused as integers."""
    return json.loads(data, object_pairs_hook=object_of, parse_int=str, parse_float=str)


def _check(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise _TwiceError


def _twice(value: Any) -> Iterator[BodyPlace]:
    """Names that stand twice, object by object."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while waiting:
        steps, each = waiting.pop()
        if isinstance(each, _Pairs):
            seen: set[str] = set()
            for name, _ in each.pairs:
                if name in seen:
                    yield BodyPlace(*steps, name)
                seen.add(name)
            inside: list[tuple[str | int, Any]] = [*each.pairs]
        elif isinstance(each, list):
            inside = [*enumerate(cast("list[Any]", each))]
        else:
            continue
        waiting += [((*steps, step), inner) for step, inner in reversed(inside)]
