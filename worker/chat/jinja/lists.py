"""The lists that a template may append to: those that it made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from jinja2.exceptions import SecurityError


class GivenLists:
    """The lists that one rendering was given."""

    def __init__(self, given: object) -> None:
        self._given = given
        self._ids: frozenset[int] | None = None  # found at the first append

    def check_append(self, target: list[Any], values: Sequence[Any]) -> None:
        """No list comes to hold itself: what looks into lists would never end.

        Raises SecurityError.
        """
        if self._ids is None:
            self._ids = frozenset(map(id, _lists(self._given)))
        if id(target) in self._ids:
            raise SecurityError("a template cannot change what it was given")
        if any(each is target for each in _lists(values)):
            raise SecurityError("a list cannot hold itself")


def _lists(value: Any) -> Iterator[list[Any]]:
    """The lists in the value, itself among them."""
    rest = [value]
    while rest:
        found = rest.pop()
        if isinstance(found, dict):
            rest += cast("dict[Any, Any]", found).values()
        elif isinstance(found, list | tuple):
            rest += cast("list[Any]", found)
            if isinstance(found, list):
                yield cast("list[Any]", found)
