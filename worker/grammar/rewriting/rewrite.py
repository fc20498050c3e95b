"""A schema's keywords that no grammar holds, taken away or said with others where that is known.

What comes out allows the same values, or fewer. The functions change the schema that they are
given, and return False where nothing is valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from worker.grammar.keywords import (
    APPLIED,
    HELD,
    NOT_HELD,
    SCHEMA_MAPS,
    Schema,
    is_count,
    keep_types,
    prune,
    says_nothing,
    types_of,
    without_type,
)
from worker.grammar.rewriting.properties import (
    split_dependencies,
    without_dependencies,
    without_names,
    without_unevaluated,
)
from worker.grammar.rewriting.unique import without_unique

_MOST_OTHERS = 16  # of which each is required once


def simplify(schema: Schema, resolve: Callable[[Any], Any]) -> Schema | bool:
    """The schema without keywords that say nothing here or that others say; False: none is valid.

    What stays of keywords that no grammar holds, nothing here could say.

    resolve: gives what a reference means, or raises RequestError
    """
    own = {
        key: value
        for key, value in schema.items()
        if value is not None or key not in HELD | NOT_HELD
    }
    if "const" in schema:
        own["const"] = schema["const"]
    _empty(own)
    prune(own)
    for rewrite in (_negation, _condition, _reduce_contains):
        if not rewrite(own):
            return False
    _close_items(own)
    without_unevaluated(own, resolve)
    if not without_names(own, resolve):
        return False
    split_dependencies(own)
    _declare_required(own)
    _old_bounds(own)
    made = without_dependencies(own) or _some_property(own) or without_unique(own, resolve) or own
    return made.get("type") != [] and made


def _empty(own: Schema) -> None:
    """Lists with nothing in them: `allOf` says nothing, and some languages have no other `{}`."""
    if own.get("allOf") == []:
        del own["allOf"]
    own.update({key: {} for key in SCHEMA_MAPS if own.get(key) == []})


def _negation(own: Schema) -> bool:
    """`not`: of everything, of nothing, of types, of values."""
    value: Any = own.get("not", False)
    if value is False:
        own.pop("not", None)
        return True
    if says_nothing(value):
        return False
    inner = cast("Schema", value) if isinstance(value, dict) else {}
    if inner.keys() == {"not"}:
        del own["not"]
        own["allOf"] = [*_as_list(own.get("allOf", [])), inner["not"]]
        return True
    if inner.keys() == {"type"}:
        gone, kinds = {*types_of(inner)}, types_of(own)
        if "integer" in gone - {"number"} and "number" in set(kinds) - gone:
            return True
        gone |= {"integer"} if "number" in gone else set()
        del own["not"]
        return keep_types(own, [kind for kind in kinds if kind not in gone])
    values: Any = [inner["const"]] if "const" in inner else inner.get("enum")
    listed: Any = [own["const"]] if "const" in own else own.get("enum")
    if inner.keys() - {"const"} <= {"enum"} and isinstance(values, list) and listed is not None:
        if not isinstance(listed, list):
            return True
        left = [each for each in cast("list[Any]", listed) if not _is_in(each, values)]
        for key in ("not", "const"):
            own.pop(key, None)
        own["enum"] = left
        return bool(left)
    return True


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _is_in(value: Any, values: Any) -> bool:
    """1 and 1.0 are the same, 1 and true are not."""
    return any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in values
    )


def _condition(own: Schema) -> bool:
    """`if`: where what follows is the same for all values."""
    if "if" not in own:
        return True
    asked, then, other = own["if"], own.get("then", True), own.get("else", True)
    if says_nothing(asked):
        follows = then
    elif asked is False:
        follows = other
    elif says_nothing(then) and says_nothing(other):
        follows = True
    else:
        return True
    for key in ("if", "then", "else"):
        own.pop(key, None)
    if not says_nothing(follows):
        own["allOf"] = [*_as_list(own.get("allOf", [])), follows]
    return True


def _reduce_contains(own: Schema) -> bool:
    """`contains`: of anything, of what all items are, of nothing, or no item at all."""
    value, least, most = own.get("contains"), own.get("minContains", 1), own.get("maxContains")
    if value is None:
        for key in ("minContains", "maxContains"):
            own.pop(key, None)
        return True
    counts = (least, most or 0, own.get("minItems", 0), own.get("maxItems", 0))
    if not all(map(is_count, counts)):
        return True
    is_free = least == 0 and most is None
    if not (is_free or value is False):
        if not says_nothing(value) and (value != own.get("items") or "prefixItems" in own):
            return True
        own["minItems"] = max(least, own.get("minItems", 0))
        if most is not None:
            own["maxItems"] = min(most, own.get("maxItems", most))
    for key in ("contains", "minContains", "maxContains"):
        own.pop(key, None)
    return value is not False or least == 0 or without_type(own, "array")


def _close_items(own: Schema) -> None:
    """`unevaluatedItems`, where it is about just those that are not described here."""
    value: Any = own.get("unevaluatedItems")
    if value is None:
        return
    beside = own.keys() & {"allOf", "anyOf", "oneOf", "$ref", "contains", "if"}
    is_whole = "items" in own and not isinstance(own["items"], list)
    if says_nothing(value) or is_whole or "additionalItems" in own:
        del own["unevaluatedItems"]
    elif not beside:
        del own["unevaluatedItems"]
        own["additionalItems" if "items" in own else "items"] = value


def _declare_required(own: Schema) -> None:
    """Names that `properties` does not have are properties too, with any value."""
    names: Any = own.get("required")
    if isinstance(names, bool):  # as early drafts have it, of one property
        del own["required"]
    properties: Any = own.get("properties")
    if not isinstance(names, list) or not isinstance(properties, dict):
        return
    if not own.keys() & {"additionalProperties", "patternProperties", "unevaluatedProperties"}:
        texts = [name for name in cast("list[Any]", names) if isinstance(name, str)]
        own["properties"] = {**properties, **{t: True for t in texts if t not in properties}}


def _some_property(own: Schema) -> Schema | None:
    """`minProperties` of one more than are required: one of the others is; None: it stays.

    Native code counts where all properties are required, or none is described.
    """
    properties: Any = own.get("properties")
    if not isinstance(properties, dict) or "patternProperties" in own or own.keys() & APPLIED:
        return None
    names, required = list(cast("Schema", properties)), own.get("required", [])
    least, most = own.get("minProperties", 0), own.get("maxProperties", 0)
    if not isinstance(required, list) or not (is_count(least) and is_count(most)):
        return None
    is_whole = own.get("additionalProperties", False) is False
    if is_whole and "maxProperties" in own and most >= len(names):
        own["additionalProperties"] = False
        del own["maxProperties"]
    num_required = sum(name in required for name in names)
    others = [name for name in names if name not in required]
    if least <= num_required:
        own.pop("minProperties", None)
    elif least == num_required + 1 and 0 < len(others) <= _MOST_OTHERS:
        rest = {key: value for key, value in own.items() if key != "minProperties"}
        return {"anyOf": [{**rest, "required": [*required, name]} for name in others]}
    return None


def _old_bounds(own: Schema) -> None:
    """`exclusiveMaximum: true` of early drafts is about `maximum`."""
    for key, bound in (("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")):
        if isinstance(own.get(key), bool) and own.pop(key) and bound in own:
            own[key] = own.pop(bound)
