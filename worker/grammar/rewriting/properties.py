"""Keywords of an object's properties: `propertyNames`, what one property asks for
(`dependentRequired`, `dependentSchemas` and their older name), `unevaluatedProperties`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from worker.grammar.keywords import HELD, NOT_HELD, Schema, is_count, says_nothing, types_of

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
    here = _describe({k: v for k, v in rest.items() if k not in choices}, resolve, 0)
    if here is None or len(choices) > 1:
        return
    if not choices:
        del own["unevaluatedProperties"]
        own |= _close(own, here, value)
        return
    branches: Any = own[choices[0]]
    if not isinstance(branches, list):
        return
    found = [_describe(branch, resolve, 1) for branch in cast("list[Any]", branches)]
    if None in found:
        return
    del own["unevaluatedProperties"]
    own[choices[0]] = [
        {"allOf": [branch, _close({}, _join(here, names), value)]}
        for branch, names in zip(cast("list[Any]", branches), found, strict=True)
        if names is not None
    ]


def _close(own: Schema, names: _Names, value: Any) -> Schema:
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


def _join(one: _Names, other: _Names) -> _Names:
    return one[0] | other[0], one[1] | other[1], one[2] or other[2]


def _describe(schema: Any, resolve: Callable[[Any], Any], depth: int) -> _Names | None:
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
        more = _describe(part, resolve, depth + 1)
        if more is None:
            return None
        found = _join(found, more)
    return found
