"""How many patterns one string may have to match at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from worker.grammar.keywords import SCHEMA_LISTS, SCHEMA_MAPS, SCHEMAS

_OF_STRINGS = ("pattern", "format", "minLength", "maxLength")
_CHOICES = ("anyOf", "oneOf")


class Conjunctions:
    """Counts in a schema whose references lead to definitions, by their last part."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._known: dict[str, int] = {}

    def most(self, schema: Any) -> int:
        """Patterns that may hold for one string somewhere in it, at most; lengths count as one.

        What is combined by `allOf` or stands beside a reference may be about one string, however
        deep in it that string is.
        """
        if not isinstance(schema, dict):
            return 0
        own = cast("dict[str, Any]", schema)
        here = sum(key in own for key in _OF_STRINGS[:2])
        here += any(key in own for key in _OF_STRINGS[2:])
        inside = [here]
        for key in own.keys() - {"allOf", *_CHOICES}:
            inside += [self.most(part) for part in parts_of(key, own[key])]
        count = max(inside)
        count += sum(self.most(part) for part in own.get("allOf", ()))
        for key in _CHOICES:
            count += max((self.most(part) for part in own.get(key, ())), default=0)
        if "$ref" in own:
            count += self._referred(own["$ref"].rpartition("/")[2])
        return count

    def _referred(self, name: str) -> int:
        if name not in self._known:
            self._known[name] = 0  # where it leads back to itself it is about another string
            self._known[name] = self.most(self._definitions[name])
        return self._known[name]


def parts_of(key: str, value: Any) -> list[Any]:
    """The schemas that are a keyword's value."""
    if key in SCHEMA_MAPS:
        return list(cast("dict[str, Any]", value).values())
    if key in SCHEMAS | SCHEMA_LISTS:
        return cast("list[Any]", value if isinstance(value, list) else [value])
    return []
