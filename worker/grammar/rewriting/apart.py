"""Schemas of which one value matches one at most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import Any, cast

from worker.grammar.keywords import APPLIED, Schema, types_of

Target = Callable[[Any], Any]
_MOST, _DEEPEST = 64, 8  # each is compared with each, and what their properties are
_OPEN = {"patternProperties", *APPLIED}


def are_apart(schemas: Sequence[Any], target: Target, *, closed: bool) -> bool:
    """Whether it is plain to see: their types differ, a property that both must have tells them
    apart by its value, or one must have a property that the other does not know.

    target: what a reference leads to; it raises where it leads nowhere
    closed: whether objects have no properties but those that are described
    """
    if len(schemas) > _MOST:
        return False
    told = [_follow(schema, target) for schema in schemas]
    differ = partial(_differ, target=target, closed=closed, depth=_DEEPEST)
    return all(differ(one, other) for one, other in combinations(told, 2))


def _follow(schema: Any, target: Target) -> Schema:
    if isinstance(schema, dict) and set(cast("Schema", schema)) == {"$ref"}:
        schema = target(schema["$ref"])
    return cast("Schema", schema) if isinstance(schema, dict) else {}


def _differ(one: Schema, other: Schema, *, target: Target, closed: bool, depth: int) -> bool:
    if not _kinds(one) & _kinds(other):
        return True
    values, other_values = _values(one), _values(other)
    if values is not None and other_values is not None:
        return not any(value in other_values for value in values)
    if _lacks(one, other, closed=closed) or _lacks(other, one, closed=closed):
        return True
    both = _required_names(one) & _required_names(other) if depth else ()
    return any(
        _differ(
            _follow(one["properties"][name], target),
            _follow(other["properties"][name], target),
            target=target,
            closed=closed,
            depth=depth - 1,
        )
        for name in both
    )


def _kinds(schema: Schema) -> set[str]:
    """An integer is a number."""
    return {"number" if kind == "integer" else kind for kind in types_of(schema)}


def _values(schema: Schema) -> list[Any] | None:
    """All that it allows; None: they are not told."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return cast("list[Any]", values) if isinstance(values, list) else None


def _lacks(one: Schema, other: Schema, *, closed: bool) -> bool:
    """Whether an object of the first schema has too much for the second, which is closed."""
    told = other.get("properties")
    is_closed = other.get("additionalProperties", not closed) is False
    if not is_closed or not isinstance(told, dict) or other.keys() & _OPEN:
        return False
    return bool(_required_names(one) - cast("Schema", told).keys())


def _required_names(schema: Schema) -> set[str]:
    """Properties of an object that are there in any case, and described."""
    names, described = schema.get("required"), schema.get("properties")
    if not isinstance(names, list) or not isinstance(described, dict):
        return set()
    told = cast("Schema", described)
    return {name for name in cast("list[Any]", names) if isinstance(name, str) and name in told}
