"""`dependentRequired`, `dependentSchemas` and their older name: what one property asks for."""

from __future__ import annotations

from typing import Any, cast

from worker.grammar.keywords import Schema
from worker.grammar.rewriting.types import says_nothing

_MOST = 3  # each doubles the alternatives
_NEEDS, _PARTS = "dependentRequired", "dependentSchemas"


def split_dependencies(own: Schema) -> None:
    """Sort `dependencies` into the other two, and take away what says nothing.

    What a required property asks for is asked for; what one asks for that cannot be is not.
    """
    older: Any = own.get("dependencies")
    if isinstance(older, dict):
        del own["dependencies"]
        for name, value in cast("Schema", older).items():
            key = _NEEDS if isinstance(value, list | str) else _PARTS
            beside: Any = own[key] if isinstance(own.get(key), dict) else {}
            own[key] = {**beside, name: [value] if isinstance(value, str) else value}
    required: Any = own.get("required", [])
    if not isinstance(required, list):
        return
    for key in (_NEEDS, _PARTS):
        parts: Any = own.get(key)
        if not isinstance(parts, dict):
            continue
        left = {name: part for name, part in cast("Schema", parts).items() if _binds(own, name)}
        for name, part in [*left.items()]:
            if key == _NEEDS and isinstance(part, list):
                left[name] = [each for each in cast("list[Any]", part) if each not in required]
            if left[name] == [] or says_nothing(left[name]):
                del left[name]
            elif name in required:
                _ask(own, key, left.pop(name))
                required = own.get("required", [])
        own.pop(key)
        own |= {key: left} if left else {}


def _binds(own: Schema, name: str) -> bool:
    """Whether an object may have this property. Those that are described are all, as a rule."""
    properties: Any = own.get("properties")
    if not isinstance(properties, dict):
        return own.get("additionalProperties") is not False or "patternProperties" in own
    if name in properties:
        return properties[name] is not False
    if "patternProperties" in own or own.get("additionalProperties", False) is not False:
        return True
    own["properties"] = {**properties, name: False}
    return False


def _ask(own: Schema, key: str, part: Any) -> None:
    if key == _NEEDS:
        own["required"] = [*own.get("required", []), *part]
    else:
        beside = own.get("allOf", [])
        own["allOf"] = [*(beside if isinstance(beside, list) else [beside]), part]


def without_dependencies(own: Schema) -> Schema | None:
    """Either without the property, or with it and what it asks for; None: nothing is asked for."""
    if own.keys() & {"anyOf", "oneOf", "$ref"}:
        return None
    asked: list[tuple[str, str, Any]] = []
    for key in (_NEEDS, _PARTS):
        parts: Any = own.get(key)
        if isinstance(parts, dict):
            asked += [(key, name, part) for name, part in cast("Schema", parts).items()]
    properties: Any = own.get("properties", {})
    required: Any = own.get("required", [])
    if not 0 < len(asked) <= _MOST or not isinstance(properties, dict):
        return None
    key, name, part = asked[0]
    if not isinstance(required, list) or (key == _NEEDS and not isinstance(part, list)):
        return None
    rest = dict(own)
    rest[key] = {each: value for each, value in own[key].items() if each != name}
    without: Schema = {**rest, "properties": {**cast("Schema", properties), name: False}}
    if "properties" not in own:
        without.setdefault("additionalProperties", True)
    having: Schema = {**rest, "required": [*cast("list[Any]", required), name]}
    _ask(having, key, part)
    return {"anyOf": [without, having]}
