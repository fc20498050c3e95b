"""`uniqueItems`: lists of a few values, each at most once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, cast

from worker.grammar.keywords import HELD, NOT_HELD, Schema, is_count, types_of

_MOST = 400  # lists that are written out: five values in any order are 326
_MOST_CHARS = 100_000  # of them
_OF_ITEMS = frozenset({"items", "minItems", "maxItems", "uniqueItems"})
_MOST_NUMBERS = 20


def without_unique(own: Schema, resolve: Callable[[Any], Any]) -> Schema | None:
    """All lists of different values, where they are few; None: it says nothing, or it stays."""
    if own.get("uniqueItems") is not True:
        own.pop("uniqueItems", None)
        return None
    most, least = own.get("maxItems"), own.get("minItems", 0)
    prefix, items = own.get("prefixItems", []), own.get("items")
    if is_count(most) and cast("float", most) <= 1:
        del own["uniqueItems"]
        return None
    if items is False and isinstance(prefix, list) and len(cast("list[Any]", prefix)) <= 1:
        del own["uniqueItems"]
        return None
    values = _values(items, resolve)
    held = own.keys() & (HELD | NOT_HELD)
    about = held - {"type", "$schema"}
    if values is None or not about <= _OF_ITEMS or not is_count(least):
        return None
    most = min(len(values), int(cast("float", most))) if is_count(most) else len(values)
    lengths = range(max(0, int(least)), most + 1)
    count = 0
    for length in lengths:
        count += _arrangements(len(values), length)
        if count > _MOST or count * len(json.dumps(values)) > _MOST_CHARS:
            return None
    lists = [list(each) for k in lengths for each in itertools.permutations(values, k)]
    others = [kind for kind in types_of(own) if kind != "array"]
    if not others:
        return {"enum": lists} if lists else {"type": []}
    return {"anyOf": [{"enum": lists}, {"type": others}]} if lists else {"type": others}


def _arrangements(count: int, length: int) -> int:
    found = 1
    for place in range(length):
        found *= count - place
        if found > _MOST:
            break
    return found


def _values(schema: Any, resolve: Callable[[Any], Any]) -> list[Any] | None:
    """All values that it allows, each once; None: there are many, or nothing can be said."""
    for _ in range(8):
        if isinstance(schema, dict) and cast("Schema", schema).keys() == {"$ref"}:
            schema = resolve(cast("Schema", schema)["$ref"])
    if not isinstance(schema, dict):
        return None
    own = cast("Schema", schema)
    held = own.keys() & (HELD | NOT_HELD) - {"$schema"}
    listed: Any = [own["const"]] if "const" in own else own.get("enum")
    if isinstance(listed, list) and held <= {"const", "enum", "type"}:
        found = [value for value in cast("list[Any]", listed) if _is_of(value, own)]
        return list({_key(value): value for value in found}.values())
    if held == {"type"} and set(types_of(own)) <= {"boolean", "null"}:
        kinds = types_of(own)
        return [
            *([False, True] if "boolean" in kinds else []),
            *([None] if "null" in kinds else []),
        ]
    low, high = own.get("minimum"), own.get("maximum")
    if own.get("type") == "integer" and held == {"type", "minimum", "maximum"}:
        return _numbers(low, high)
    return None


def _numbers(low: Any, high: Any) -> list[Any] | None:
    if not (isinstance(low, int) and isinstance(high, int)) or high - low >= _MOST_NUMBERS:
        return None
    return list(range(low, high + 1))


def _is_of(value: Any, own: Schema) -> bool:
    """Whether a value is of the types that the schema names."""
    if "type" not in own:
        return True
    kinds = types_of(own)
    match value:
        case bool():
            return "boolean" in kinds
        case None:
            return "null" in kinds
        case int():
            return bool({"integer", "number"} & set(kinds))
        case float():
            return "number" in kinds or ("integer" in kinds and value.is_integer())
        case str():
            return "string" in kinds
        case list():
            return "array" in kinds
        case _:
            return "object" in kinds


def _key(value: Any) -> str:
    """The same for the same value: 1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)
