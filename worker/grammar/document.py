"""A client's JSON schema as a whole: what its references lead to, and how many patterns one string
may have to match at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast
from urllib.parse import unquote, urldefrag, urljoin

from worker.grammar.keywords import (
    APPLIED,
    BESIDE,
    CONDITIONS,
    SCHEMA_LISTS,
    SCHEMA_MAPS,
    SCHEMAS,
    Schema,
)
from worker.limits import SCHEMA_DEPTH

_ANCHORS = ("$anchor", "$dynamicAnchor")


class SchemaDocument:
    """Its places, by pointers, by anchors, and by the `$id` of a part.

    is_combined  whether a schema is combined with another one anywhere: each of the two describes
                 some of the properties, so neither may be closed
    """

    def __init__(self, schema: Schema | bool, refuse: Callable[[str], NoReturn]) -> None:
        """Refuses what is nested too deep."""
        self._root = schema
        self._refuse = refuse
        self._named: dict[str, Any] = {}
        self._base = ""
        if isinstance(schema, dict):
            self._base = self._join(schema.get("$id")) or ""
        self.is_combined = self._look()

    def _look(self) -> bool:
        found = False
        stack: list[tuple[Any, int]] = [(self._root, 0)]
        while stack:
            value, depth = stack.pop()
            if depth > SCHEMA_DEPTH.most:
                self._refuse(f"is nested deeper than {SCHEMA_DEPTH.most}")
            if isinstance(value, dict):
                own = cast("Schema", value)
                keys = own.keys()
                found = found or "allOf" in keys or bool(keys & APPLIED and keys & BESIDE)
                found = found or any(own.get(key) for key in CONDITIONS)
                self._name(own)
                stack += [(item, depth + 1) for item in own.values()]
            elif isinstance(value, list):
                stack += [(item, depth + 1) for item in cast("list[Any]", value)]
        return found

    def _name(self, own: Schema) -> None:
        for key in _ANCHORS:
            if isinstance(own.get(key), str):
                self._named["#" + own[key]] = own
        if own is not self._root and (name := self._join(own.get("$id"))):
            self._named[name] = own

    def _join(self, reference: Any) -> str | None:
        """The whole address; None: there is none."""
        try:
            return urljoin(self._base, reference) if isinstance(reference, str) else None
        except ValueError:
            return None

    def target(self, reference: Any) -> Any:
        """The part that a reference means. Refuses what leads elsewhere."""
        if isinstance(reference, str) and reference in self._named:
            return self._named[reference]
        whole = self._join(reference)
        where, fragment = urldefrag("?" if whole is None else whole)
        is_root = where == urldefrag(self._base)[0]
        if not (is_root or where in self._named) or not re.match("/|$", fragment):
            self._refuse("refers to another document or to no place in this one")
        return self._follow(self._root if is_root else self._named[where], fragment)

    def _follow(self, found: Any, pointer: str) -> Any:
        value: Any = found
        for part in unquote(pointer).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            try:
                value = value[int(key) if isinstance(value, list) else key]  # pyright: ignore
            except (KeyError, IndexError, TypeError, ValueError):
                if key:  # "#/" is the document
                    self._refuse("refers to a place that it does not have")
        return value  # pyright: ignore[reportUnknownVariableType]


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
            count += self._refer(own["$ref"].rpartition("/")[2])
        return count

    def _refer(self, name: str) -> int:
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
