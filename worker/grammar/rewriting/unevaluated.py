"""`unevaluatedProperties`: properties that no part of the schema describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from worker.grammar.keywords import Schema
from worker.grammar.rewriting.types import says_nothing

_CHOICES = ("anyOf", "oneOf")
_MOST_DEEP = 16
_OTHERS = ("additionalProperties", "unevaluatedProperties")
_UNKNOWN = frozenset({"if", "dependentSchemas", "dependencies", "not", "propertyNames"})

_Names = tuple[set[str], set[str], bool]  # names, patterns, whether all others are described too


def without_unevaluated(own: Schema, resolve: Callable[[Any], Any]) -> None:
    """It becomes `additionalProperties`, beside all names that are described at this place.

    Where one of several schemas holds it becomes a part of each. It stays where what is described
    depends on more.
    """
    value: Any = own.get("unevaluatedProperties")
    if value is None:
        return
    if says_nothing(value) or "additionalProperties" in own:
        del own["unevaluatedProperties"]
        return
    rest = {key: each for key, each in own.items() if key != "unevaluatedProperties"}
    choices = [key for key in _CHOICES if key in own]
    here = _described({k: v for k, v in rest.items() if k not in choices}, resolve, 0)
    if here is None or len(choices) > 1:
        return
    if not choices:
        del own["unevaluatedProperties"]
        own |= _closed(own, here, value)
        return
    branches: Any = own[choices[0]]
    if not isinstance(branches, list):
        return
    found = [_described(branch, resolve, 1) for branch in cast("list[Any]", branches)]
    if None in found:
        return
    del own["unevaluatedProperties"]
    own[choices[0]] = [
        {"allOf": [branch, _closed({}, _joined(here, names), value)]}
        for branch, names in zip(cast("list[Any]", branches), found, strict=True)
        if names is not None
    ]


def _closed(own: Schema, names: _Names, value: Any) -> Schema:
    known, patterns, is_all = names
    if is_all:
        return {}
    properties, patterned = own.get("properties", {}), own.get("patternProperties", {})
    closed: Schema = {"additionalProperties": value}
    closed["properties"] = {**properties, **{n: True for n in sorted(known) if n not in properties}}
    if patterns:
        more = {each: True for each in sorted(patterns) if each not in patterned}
        closed["patternProperties"] = {**patterned, **more}
    return closed


def _joined(one: _Names, other: _Names) -> _Names:
    return one[0] | other[0], one[1] | other[1], one[2] or other[2]


def _described(schema: Any, resolve: Callable[[Any], Any], depth: int) -> _Names | None:
    """What holds for all valid objects; None: it depends, or nothing can be said."""
    if isinstance(schema, bool):
        return set(), set(), False
    if not isinstance(schema, dict) or depth > _MOST_DEEP:
        return None
    own = cast("Schema", schema)
    if own.keys() & {*_CHOICES, *_UNKNOWN} and depth:
        return None
    if own.keys() & _UNKNOWN - {"not", "propertyNames"}:
        return None
    properties, patterns = own.get("properties", {}), own.get("patternProperties", {})
    beside = own.get("allOf", [])
    if not (isinstance(properties, dict) and isinstance(patterns, dict)):
        return None
    if not isinstance(beside, list):
        return None
    is_all = bool(own.keys() & {*_OTHERS})
    found: _Names = set(cast("Schema", properties)), set(cast("Schema", patterns)), is_all
    inner: list[Any] = [*cast("list[Any]", beside)]
    if "$ref" in own:
        inner.append(resolve(own["$ref"]))
    for part in inner:
        more = _described(part, resolve, depth + 1)
        if more is None:
            return None
        found = _joined(found, more)
    return found
