"""Arguments that are written one by one, as raw text, told as JSON that their schemas type."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import check_json
from worker.chat.reading.source import DamagedError, Steps, TextSource

_ANY = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_TEXT = frozenset({"string"})


def types_of(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """The JSON types that a schema allows, through anyOf, oneOf, allOf and $ref; all where it says
    none.

    root: the schema in which `#/...` leads somewhere
    """
    return _named_types(schema, root, set()) & _ANY or _ANY


def leads_nowhere(where: str, root: Mapping[str, Any]) -> bool:
    """Whether a `$ref` leads to references alone that lead back."""
    return not _named_types({"$ref": where}, root, set())


def _named_types(schema: Any, root: Mapping[str, Any], seen: set[str]) -> frozenset[str]:
    """seen: references that were followed; they may lead back, and to each place many ways."""
    if not isinstance(schema, dict):
        return _ANY
    schema = cast("dict[str, Any]", schema)
    if isinstance(where := schema.get("$ref"), str):
        if where in seen:
            return frozenset()
        seen.add(where)
        return _named_types(resolve_reference(where, root), root, seen)
    match schema.get("type"):
        case str() as name:
            return frozenset({name})
        case [*names]:
            return frozenset(str(name) for name in names) or _ANY
        case _:
            pass
    for word in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(word), list):
            found = (_named_types(c, root, seen) for c in cast("list[Any]", choices))
            return frozenset[str]().union(*found)
    values: Any = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values:
        return frozenset[str]().union(*map(_type_of, cast("list[Any]", values)))
    if isinstance(parts := schema.get("allOf"), list) and parts:
        each = (_named_types(part, root, seen) for part in cast("list[Any]", parts))
        led = [types for types in each if types]  # what leads back says nothing
        return _ANY.intersection(*led) if led else frozenset()
    return _ANY


def resolve_reference(where: str, root: Mapping[str, Any]) -> Any:
    """What a `$ref` leads to in its root; None: nothing. An empty one is the root."""
    pointer = unquote(where.removeprefix("#"))
    if not re.match("/|$", pointer):
        return None
    found: Any = root
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = cast("Mapping[str, Any]", found).get(key)
        elif isinstance(found, list) and re.fullmatch("[0-9]{1,9}", key):
            found = cast("list[Any]", found)[int(key) :][:1]
            found = found[0] if found else None
        else:
            return None
    return found


def part_of(schema: Any, name: str, root: Mapping[str, Any]) -> Any:
    """The schema of an object's property or of a list's items, through anyOf, oneOf, allOf and
    $ref; None where it says nothing."""
    todo, seen = [schema], set[str]()
    while todo:
        found = todo.pop()
        if not isinstance(found, dict):
            continue
        part = cast("dict[str, Any]", found)
        where: Any = part.get("$ref")
        if isinstance(where, str) and where not in seen:
            seen.add(where)
            todo.append(resolve_reference(where, root))
        for word in ("anyOf", "oneOf", "allOf"):
            if isinstance(choices := part.get(word), list):
                todo += cast("list[Any]", choices)
        properties: Any = part.get("properties")
        if isinstance(properties, dict) and name in properties:
            return cast("dict[str, Any]", properties)[name]
        if "items" in part:
            return part["items"]
    return None


def escape(text: str) -> str:
    """A part of a JSON string, without quotation marks."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def value_of(text: str, types: frozenset[str]) -> str:
    """A value's raw text as JSON of one of these types; as a string where it is none of them.

    Words such as `None` and `True` are read as JSON's where no text may stand.
    """
    bare = text.strip()
    if "string" not in types:
        named = {"true": "true", "false": "false", "null": "null", "none": "null"}.get(bare.lower())
        if named is not None and {"null": "null"}.get(named, "boolean") in types:
            return named
    try:
        bare = check_json(bare)
        value = json.loads(bare)
        fits = _type_of(value) & types and _is_finite(value)
    except DamagedError:
        fits = False
    return bare if fits else json.dumps(text, ensure_ascii=False)


def _type_of(value: Any) -> frozenset[str]:
    match value:
        case bool():
            return frozenset({"boolean"})
        case int():
            return frozenset({"integer", "number"})
        case float():
            return frozenset({"number"})
        case dict():
            return frozenset({"object"})
        case list():
            return frozenset({"array"})
        case None:
            return frozenset({"null"})
        case _:
            return frozenset({"string"})


def _is_finite(value: Any) -> bool:
    """Whether its numbers are: 1e999 is not, once it is read."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict | list):
        held = cast("list[Any]", list(value.values()) if isinstance(value, dict) else value)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        return all(map(_is_finite, held))
    return True


class Parameters:
    """Writes the arguments of one call as a JSON object.

    begin · value(key, ...) · value(key, ...) · end
    """

    def __init__(self, source: TextSource, calls: Calls, name: str, call_id: str = "") -> None:
        """Begins the call. Raises DamagedError where no tool has this name."""
        calls.begin(name, call_id)
        self._source = source
        self._calls = calls
        self._schema = calls.tools[name].parameters
        self._num_keys = 0
        calls.add("{")

    def end(self) -> None:
        self._calls.add("}")
        self._calls.end()

    def key(self, key: str) -> None:
        """The next value's. One that comes again is told again, as in JSON; the last one counts."""
        comma = ", " if self._num_keys else ""
        self._num_keys += 1
        self._calls.add(f"{comma}{json.dumps(key, ensure_ascii=False)}: ")

    def value(
        self,
        key: str,
        end: str,
        follows: Sequence[str],
        *,
        is_padded: bool = False,
        is_text: bool | None = None,
    ) -> Steps[None]:
        """One value, raw, up to its end; the end is read too.

        follows    what may come after the end, white space aside; else the end is part of the value
        is_padded  a line end stands around the value
        is_text    whether it is a string; None: what its schema says

        Raises DamagedError.
        """
        self.key(key)
        types = self._types(key)
        if is_text is not None:
            types = _TEXT if is_text else types | (_ANY - _TEXT)
        if is_padded:
            yield from self._source.one_of("\n")
        if types == _TEXT:
            self._calls.add('"')
            yield from self._raw(end, follows, is_padded, None)
            self._calls.add('"')
        else:
            text = yield from self.raw(end, follows, is_padded=is_padded)
            self._calls.add(value_of(text, types))

    def raw(self, end: str, follows: Sequence[str], *, is_padded: bool = False) -> Steps[str]:
        """A value's text, of which nothing is told; as in `value`."""
        kept: list[str] = []
        yield from self._raw(end, follows, is_padded, kept)
        return "".join(kept)

    def _types(self, key: str) -> frozenset[str]:
        schema: Any = self._schema
        if isinstance(where := self._schema.get("$ref"), str):
            schema = resolve_reference(where, self._schema)
        properties: Any = schema.get("properties") if isinstance(schema, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        found = cast("Any", properties).get(key) if isinstance(properties, dict) else None
        return types_of(found, self._schema)

    def _raw(
        self, end: str, follows: Sequence[str], is_padded: bool, kept: list[str] | None
    ) -> Steps[None]:
        """The value's text into `kept`, or told as part of a string."""
        source = self._source
        line_end = ""
        while True:
            text, marker = source.take((end,))
            text = line_end + text
            is_end = marker is not None and (yield from self._is_followed(follows))
            if marker is not None and not is_end:
                text += end
            line_end = "\n" if is_padded and text.endswith("\n") else ""
            text = text.removesuffix(line_end)
            if kept is None:
                self._calls.add(escape(text))
            else:
                kept.append(text)
            if is_end:
                return
            if marker is None:
                if source.is_ended:
                    raise DamagedError
                yield

    def _is_followed(self, follows: Sequence[str]) -> Steps[bool]:
        """Whether one of these texts comes next, white space aside; reads nothing."""
        count = 0
        while True:
            came = yield from self._source.peek(count + 1)
            if len(came) <= count:
                return True
            if not came[count].isspace():
                break
            count += 1
        for text in follows:
            came = yield from self._source.peek(count + len(text))
            if came[count:] == text:
                return True
        return False
