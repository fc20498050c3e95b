"""`propertyNames`: the names that an object may have are its properties, or match a pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from worker.grammar.keywords import HELD, NOT_HELD, Schema
from worker.grammar.rewriting.types import is_count, says_nothing, types_of

_ANNOTATIONS = frozenset({"$schema", "format"})


def without_names(own: Schema, resolve: Callable[[Any], Any]) -> bool:
    """False: no value is valid. It stays where names would have to match two patterns at once."""
    value: Any = own.get("propertyNames")
    for _ in range(8):  # one that leads back to itself stays
        if isinstance(value, dict) and value.keys() == {"$ref"}:
            value = resolve(value["$ref"])
    if value is None:
        return True
    if isinstance(value, dict):
        asked = {
            key: each
            for key, each in cast("Schema", value).items()
            if key in HELD | NOT_HELD and key not in _ANNOTATIONS
        }
        if "string" in types_of(asked):
            asked.pop("type", None)
        else:
            value = False
    else:
        asked = dict[str, Any]()
    if value is False:
        own["maxProperties"] = 0
        del own["propertyNames"]
    elif says_nothing(asked):
        del own["propertyNames"]
    else:
        _hold(own, asked)
    return True


def _hold(own: Schema, asked: Schema) -> None:
    properties: Any = own.get("properties", {})
    if not isinstance(properties, dict):
        return
    if own.keys() & {"patternProperties", "unevaluatedProperties"}:
        return
    known = cast("Schema", properties)
    others: Any = own.get("additionalProperties", True)
    names: Any = [asked["const"]] if "const" in asked else asked.get("enum")
    if isinstance(names, list) and asked.keys() <= {"const", "enum"}:
        texts = [name for name in cast("list[Any]", names) if isinstance(name, str)]
        kept = {name: part for name, part in known.items() if name in texts}
        if others is not False:
            kept |= {name: others for name in texts if name not in kept}
        own |= {"properties": kept, "additionalProperties": False}
        del own["propertyNames"]
    elif not known and others is not False and (pattern := _pattern(asked)):
        own |= {"patternProperties": {pattern: others}, "additionalProperties": False}
        del own["propertyNames"]


def _pattern(asked: Schema) -> str | None:
    if asked.keys() == {"pattern"}:
        return asked["pattern"] if isinstance(asked["pattern"], str) else None
    least, most = asked.get("minLength", 0), asked.get("maxLength", 0)
    if not asked.keys() <= {"minLength", "maxLength"} or not (is_count(least) and is_count(most)):
        return None
    if not 0 <= least <= 1000 or not 0 <= most <= 1000:
        return None
    return f"^(?s:.){{{int(least)},{int(most) if 'maxLength' in asked else ''}}}$"
