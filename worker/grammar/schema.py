"""JSON schemas that clients send, reduced to what a grammar can follow."""

from __future__ import annotations

import json
import re
from collections.abc import Set
from typing import Any, NoReturn, cast
from urllib.parse import unquote

from worker.errors import RequestError
from worker.grammar.gbnf import MAX_REPEATS
from worker.grammar.keywords import BY_TYPE, GENERAL, RELEVANT, UNION, Keywords

MAX_SCHEMA_CHARS = 65_536
MAX_DEPTH = 64
MAX_PROPERTIES = 256  # the converter's work grows with their square
MAX_SUBSCHEMAS = 5_000

Schema = dict[str, Any]

ANY = {"type": "value"}  # any JSON value, to the converter; {} means any object to it
_FORMATS = re.compile(r"uuid[1-5]?|date|time|date-time")
_COUNTS = re.compile(r"\{\s*(\d+)\s*(?:,\s*(\d+)?\s*)?\}")
_PYTHON = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


class SchemaReader:
    """Rewrites a schema with the keywords that the converter follows.

    root         the schema
    definitions  the schemas that `root` and they themselves refer to
    """

    def __init__(self, schema: Schema, param: str) -> None:
        self.param = param
        self._document = schema
        self._count = 0
        self._names: dict[str, str] = {}
        self._check_depth()
        text = json.dumps(schema)
        if len(text) > MAX_SCHEMA_CHARS:
            self._refuse(f"is longer than {MAX_SCHEMA_CHARS} characters")
        self._prefix = "ref"  # of rule names that no property can have
        while self._prefix in text:
            self._prefix += "z"
        self.root = self._read(self._follow(schema), 0)
        self.definitions: Schema = {}
        while len(self.definitions) < len(self._names):
            pointer, name = list(self._names.items())[len(self.definitions)]
            self.definitions[name] = self._read(self._target(pointer), 0)

    def _refuse(self, why: str) -> NoReturn:
        raise RequestError(f"{self.param} {why}.", param=self.param)

    def _check_depth(self) -> None:
        stack: list[tuple[Any, int]] = [(self._document, 0)]
        while stack:
            value, depth = stack.pop()
            if depth > MAX_DEPTH:
                self._refuse(f"is nested deeper than {MAX_DEPTH}")
            if isinstance(value, list | dict):
                items = value.values() if isinstance(value, dict) else value  # pyright: ignore
                stack += [(item, depth + 1) for item in items]  # pyright: ignore

    def _target(self, pointer: Any) -> Any:
        """The part of the document that a reference means."""
        if not isinstance(pointer, str) or not re.match(r"#(/|$)", pointer):
            self._refuse("refers to another document or to no place in this one")
        value: Any = self._document
        for part in unquote(pointer).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            try:
                value = value[int(key) if isinstance(value, list) else key]
            except (KeyError, IndexError, TypeError, ValueError):
                self._refuse("refers to a place that it does not have")
        return value  # pyright: ignore[reportUnknownVariableType]

    def _follow(self, schema: Any) -> Any:
        """The schema itself, or the one that its chain of references ends at."""
        steps = 0
        while isinstance(schema, dict) and "$ref" in schema:
            steps += 1
            if steps > MAX_DEPTH:
                self._refuse("refers to itself")
            found = cast("Schema", schema)
            self._only(found, {"$ref"})
            schema = self._target(found["$ref"])
        return schema  # pyright: ignore[reportUnknownVariableType]

    def _only(self, schema: Schema, followed: Set[str], relevant: Keywords = RELEVANT) -> None:
        """Refuse a schema with relevant keywords besides those that are followed."""
        for name in sorted((schema.keys() & relevant) - followed):
            self._refuse(f"uses {name} in a way that a grammar cannot follow")

    def _read(self, schema: Any, depth: int) -> Schema:
        self._count += 1
        if depth > MAX_DEPTH or self._count > MAX_SUBSCHEMAS:
            self._refuse("has too many schemas inside each other")
        if schema is True:
            return ANY
        if not isinstance(schema, dict):
            self._refuse("has something in the place of a schema that is none")
        own = cast("Schema", schema)
        if "$ref" in own:
            self._only(own, {"$ref"})
            self._target(own["$ref"])
            name = self._names.setdefault(own["$ref"], f"{self._prefix}-{len(self._names)}")
            return {"$ref": f"#/$defs/{name}"}
        if "allOf" in own:
            return self._read(self._merge(own), depth + 1)
        for union in UNION & own.keys():
            self._only(own, {union})
            return {"anyOf": [self._read(s, depth + 1) for s in self._list(own, union)]}
        kinds = own.get("type")
        if "const" in own or "enum" in own:
            self._only(own, {"const", "enum", "type"})
            return {"enum": self._values(own)}
        if isinstance(kinds, list):
            own = {key: value for key, value in own.items() if key != "type"}
            return self._read({"anyOf": [_of(own, k) for k in self._list(schema, "type")]}, depth)
        if kinds is None:
            kinds = next((k for k, (a, b) in BY_TYPE.items() if own.keys() & (a | b)), None)
            if kinds is None:
                self._only(own, set())
                return ANY
        if not isinstance(kinds, str) or kinds not in BY_TYPE:
            self._refuse("has a type that JSON does not have")
        followed, not_followed = BY_TYPE[kinds]
        self._only(own, followed, followed | not_followed | GENERAL)
        if kinds == "object":
            return self._object(own, depth)
        if kinds == "array":
            return self._array(own, depth)
        return self._string(own) if kinds == "string" else {"type": kinds}

    def _list(self, schema: Any, name: str) -> list[Any]:
        value = schema[name]
        if not isinstance(value, list) or not value:
            self._refuse(f"has a {name} that is not a list with something in it")
        return cast("list[Any]", value)

    def _values(self, schema: Schema) -> list[Any]:
        values = self._list(schema, "enum") if "enum" in schema else [schema["const"]]
        if "const" in schema:
            values = [v for v in values if json.dumps(v) == json.dumps(schema["const"])]
        kinds = schema.get("type")
        if kinds is not None:
            allowed = cast("list[Any]", kinds if isinstance(kinds, list) else [kinds])
            values = [v for v in values if any(_is(v, kind) for kind in allowed)]
        if not values:
            self._refuse("allows no value at all")
        return values

    def _merge(self, schema: Schema) -> Schema:
        """One schema for all parts of allOf; refused where they cannot simply be joined."""
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for part in self._list(schema, "allOf"):
            part = self._follow(part)
            self._count += 1
            if not isinstance(part, dict):
                self._refuse("has something in the place of a schema that is none")
            for key, value in cast("Schema", part).items():
                if key not in RELEVANT:
                    continue
                old = merged.get(key, value)
                if key == "properties" and isinstance(old, dict) and isinstance(value, dict):
                    both = cast("Schema", {**value, **old})
                    if both != {**old, **value}:
                        self._refuse("has an allOf whose parts describe the same property")
                    merged[key] = both
                elif key == "required" and isinstance(old, list) and isinstance(value, list):
                    merged[key] = old + value
                elif old != value:
                    self._refuse(f"has an allOf whose parts cannot be combined ({key})")
                else:
                    merged[key] = value
        if merged.get("additionalProperties", True) is not True and len(schema["allOf"]) > 1:
            self._refuse("has an allOf with additionalProperties")  # each part means its own
        return merged

    def _object(self, schema: Schema, depth: int) -> Schema:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        more = schema.get("additionalProperties")
        if not isinstance(properties, dict) or not isinstance(required, list):
            self._refuse("has properties or required of the wrong kind")
        names = cast("Schema", properties)
        if len(names) > MAX_PROPERTIES:
            self._refuse(f"has an object with more than {MAX_PROPERTIES} properties")
        if {"", "*"} & names.keys():
            self._refuse("has a property without a name or named *")
        if not {str(name) for name in cast("list[Any]", required)} <= names.keys():
            self._refuse("uses required for a property that it does not describe")
        if not names and (more is None or more is True):
            return {"type": "object"}
        out: Schema = {"type": "object", "required": required}
        out["properties"] = {name: self._read(s, depth + 1) for name, s in names.items()}
        # Behind optional properties the converter forgets the comma before additional ones.
        if more is not None and more is not False and len(names) == len(set(required)):  # pyright: ignore
            out["additionalProperties"] = self._read(more, depth + 1)
        else:
            out["additionalProperties"] = False
        return out

    def _range(self, schema: Schema, least: str, most: str) -> Schema:
        found: Schema = {}
        for name in (least, most):
            value = schema.get(name, 0)
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                self._refuse(f"has a {name} that is not a count")
            if value > MAX_REPEATS:
                self._refuse(f"has a {name} above {MAX_REPEATS}")
            if name in schema:
                found[name] = value
        if found.get(least, 0) > found.get(most, MAX_REPEATS):
            self._refuse(f"has a {least} above its {most}")
        return found

    def _array(self, schema: Schema, depth: int) -> Schema:
        counts = self._range(schema, "minItems", "maxItems")
        items = schema.get("prefixItems", schema.get("items", True))
        if isinstance(items, list):
            count = len(self._list({"items": items}, "items"))
            if not counts.get("minItems", 0) <= count <= counts.get("maxItems", count):
                self._refuse("has minItems or maxItems that do not fit its list of items")
            return {"type": "array", "items": [self._read(s, depth + 1) for s in items]}  # pyright: ignore
        if items is False:
            counts, items = {"maxItems": 0}, True
            if schema.get("minItems"):
                self._refuse("has a minItems but allows no items")
        return {"type": "array", "items": self._read(items, depth + 1), **counts}

    def _string(self, schema: Schema) -> Schema:
        counts = self._range(schema, "minLength", "maxLength")
        out: Schema = {"type": "string", **counts}
        style, pattern = schema.get("format"), schema.get("pattern")
        if pattern is not None:
            if not isinstance(pattern, str) or counts:
                self._refuse("has a pattern that is no text, or with a minLength or maxLength")
            for least, most in _COUNTS.findall(pattern):
                if len(least) > 4 or len(most) > 4 or max(int(least), int(most or 0)) > MAX_REPEATS:
                    self._refuse(f"has a pattern that repeats more than {MAX_REPEATS} times")
                if most and int(most) < int(least):
                    self._refuse("has a pattern that repeats at least more than at most")
            out["pattern"] = pattern
        elif isinstance(style, str) and _FORMATS.fullmatch(style):
            if counts:
                self._refuse(f"has a minLength or maxLength beside the format {style}")
            out["format"] = style
        return out


def _of(schema: Schema, kind: Any) -> Schema:
    return {**schema, "type": kind}


def _is(value: Any, kind: Any) -> bool:
    if kind in ("integer", "number"):
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return not isinstance(value, bool) and (
            is_whole or (kind == "number" and isinstance(value, float))
        )
    return isinstance(value, _PYTHON.get(kind, ())) if isinstance(kind, str) else False
