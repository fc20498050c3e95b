"""A grammar of calls in llguidance's Lark, written piece by piece."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from worker.chat.message import Tool
from worker.chat.reading.parameters import resolve_reference, types_of

# (schema, what it belongs to) -> the schema as text behind `%json`, without what cannot be held
Loosened = Callable[[dict[str, Any], str], str]

ANY = r"/(.|\n)*/"
# Words of an object's schema with which its properties may be written one by one.
_PLAIN = frozenset(
    "type properties required $defs definitions $schema title description "
    "additionalProperties".split()
)
_LIST = frozenset({"type", "items", "$defs", "definitions", "title", "description"})
_MAX_DEPTH = 8  # of objects in each other
_FIXED = r"WS: /[ \t\r\n]{1,16}/"


class Lark:
    """Rules, named as they are added. Expressions are texts of Lark's right-hand sides.

    goes_on  whether what was written may go on with another call wherever it may end
    """

    def __init__(
        self,
        controls: Mapping[str, int],
        ends: Collection[str],
        loosened: Loosened,
        *,
        is_free_after: bool = False,
    ) -> None:
        """
        controls  control tokens, which have to be named by their ids
        ends      tokens that end an answer: where one would stand, the grammar is at its end
        is_free_after  whether any text may follow a call, and another call is held anew
        """
        self._controls = controls
        self._ends = ends
        self._loosened = loosened
        self._is_free_after = is_free_after
        self.goes_on = False
        self._rules: list[str] = []
        self._named: dict[tuple[str, str], str] = {}  # (body, attributes) -> name
        self._num_names = 0

    def text(self, text: str) -> str:
        """A fixed text; its control tokens by their ids. Empty for an empty one."""
        if not text or text in self._ends:
            return ""
        names = sorted((name for name in self._controls if name in text), key=len, reverse=True)
        if not names:
            return json.dumps(text, ensure_ascii=False)
        pattern = "(" + "|".join(map(re.escape, names)) + ")"
        parts = [part for part in re.split(pattern, text) if part]
        return " ".join(
            f"<[{self._controls[part]}]>" if part in self._controls else self.text(part)
            for part in parts
        )

    def rule(self, body: str, attributes: str = "") -> str:
        """A rule's name; the same one for the same body."""
        if (body, attributes) not in self._named:
            self._named[body, attributes] = name = self.later()
            self._rules.append(f"{name}{attributes}: {body}")
        return self._named[body, attributes]

    def later(self) -> str:
        """The name of a rule that is defined once its body is known."""
        self._num_names += 1
        return f"r{self._num_names}"

    def define(self, name: str, body: str) -> None:
        self._rules.append(f"{name}: {body}")

    def one_of(self, bodies: Sequence[str]) -> str:
        return self.rule(" | ".join(self.rule(body) for body in bodies))

    def any_order(self, parts: Sequence[tuple[str, bool]], between: str) -> str:
        """These, with a text between: the needed ones once, in their order, and wherever the model
        likes, and as often, the others.

        parts  (a rule's body, whether it is needed)
        """
        needed = [self.rule(body) for body, is_needed in parts if is_needed]
        others = [self.rule(body) for body, is_needed in parts if not is_needed]
        other = self.rule(" | ".join(others)) if others else ""
        states = [self.later() for _ in range(len(needed) + 1)]  # by how many of them have come
        first = ""
        for place in range(len(needed), -1, -1):
            ways = [row(other, states[place])] if other else []
            ways += [row(needed[place], states[place + 1])] if place < len(needed) else []
            end = [] if place < len(needed) else ['""']
            self.define(states[place], " | ".join([*(row(between, way) for way in ways), *end]))
            first = " | ".join([*ways, *end])
        return self.rule(first)

    def again(self, call: str, opens: str, *, one: bool) -> str:
        """A call, and others behind their opening text; nothing closes them all."""
        self.goes_on = not (one or self._is_free_after)
        return repeat(call, self.text(opens), one=not self.goes_on)

    def until(self, end: str) -> str:
        """Any text up to an end, and the end."""
        if end in self._controls:
            return self.rule(f"{ANY} {self.text(end)}")
        return self.rule(ANY, f"[suffix={json.dumps(end, ensure_ascii=False)}]")

    def value(self, end: str, follows: Sequence[str], *, beside: str = "") -> str:
        """Any text up to an end that one of these texts follows, white space aside, as readers take
        it, and the end. An end that something else follows is a part of the text.

        beside  a text with which another form of value begins, and no text
        """
        if any(name in text for name in self._controls for text in (end, *follows)):
            return self.until(end)  # the control token is no text
        suffix = f"[suffix={json.dumps(end, ensure_ascii=False)}]"
        first = self.rule(self._but(ANY, [beside]), suffix) if beside else self.until(end)
        more = self.rule(self._but(r"/[^ \t\r\n](.|\n)*/", [*follows, end]), suffix)
        if not end.startswith(tuple(follows)):
            more = f"({more} | {self.text(end)})"
        return f"{first} (WS? {more})*"

    def _but(self, regex: str, begins: Sequence[str]) -> str:
        """The name of a terminal: what the expression matches and begins with none of the texts."""
        texts = "|".join(re.escape(text).replace("/", r"\/") for text in begins)
        body = f"{regex} & ~/({texts})(.|\\n)*/"
        if (body, "terminal") not in self._named:
            self._named[body, "terminal"] = name = self.later().upper()
            self._rules.append(f"{name}: {body}")
        return self._named[body, "terminal"]

    def json(self, schema: dict[str, Any], what: str) -> str:
        """JSON by a schema, without what of it cannot be held."""
        return self.rule(f"%json {self._loosened(schema, what)}")

    def arguments(self, tool: Tool) -> str:
        """A tool's arguments as a JSON object, where its schema just lists them: optional ones
        anywhere.

        `%json` alone would want the schema's order: what the model thinks of too late were lost.
        """
        what = f"tool {tool.name}"
        if self._loosened is by_types:
            return self.json(object_schema(tool), what)
        return self._value(object_schema(tool), what, 0)

    def _value(self, schema: dict[str, Any], what: str, depth: int) -> str:
        if depth <= _MAX_DEPTH and schema.get("type") == "object" and _is_plain(schema):
            pairs = [
                (
                    with_spaces(self.text(_quote(name)), '":"', self._value(part, what, depth + 1)),
                    needed,
                )
                for name, part, needed in properties_of(schema, schema)
            ]
            return self.rule(with_spaces('"{"', self.any_order(pairs, 'WS? "," WS?'), '"}"'))
        items: Any = schema.get("items")
        if schema.get("type") == "array" and isinstance(items, dict) and schema.keys() <= _LIST:
            shared = {word: schema[word] for word in ("$defs", "definitions") if word in schema}
            part = {**shared, **cast("dict[str, Any]", items)}
            if depth <= _MAX_DEPTH and part.get("type") == "object" and _is_plain(part):
                item = self._value(part, what, depth + 1)
                return self.rule(f'"[" WS? ({item} (WS? "," WS? {item})* WS?)? "]"')
        return self.json(schema, what)

    def grammar(self, start: str) -> str:
        return "\n".join([f"start: {start}", *self._rules, _FIXED])


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _is_plain(schema: dict[str, Any]) -> bool:
    """Whether an object's schema says no more than which properties there are, two at least."""
    required: Any = schema.get("required", [])
    return (
        schema.keys() <= _PLAIN
        and len(properties_of(schema, schema)) > 1
        and schema.get("additionalProperties") in (None, True, False)
        and isinstance(required, list)
        and all(
            isinstance(name, str) and name in schema["properties"]
            for name in cast("list[Any]", required)
        )
    )


def by_types(schema: dict[str, Any], _what: str) -> str:
    """All that is held of a schema where the tools are too many to hold more: its types."""
    return json.dumps({"type": sorted(types_of(schema, schema))})


def row(*bodies: str) -> str:
    """One after the other; empty ones are left out."""
    return " ".join(body for body in bodies if body)


def with_spaces(*bodies: str) -> str:
    """The same, with white space between them where the model likes."""
    return " WS? ".join(body for body in bodies if body)


def repeat(body: str, *between: str, one: bool) -> str:
    """Once, or as often as the model likes, with texts between."""
    return body if one else f"{body} (WS? {with_spaces(*between, body)})*"


def object_schema(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments, which are an object: any, where it asks for no object."""
    schema = tool.parameters
    kind: Any = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        return {"type": "object"}
    if any(word in schema for word in ("$ref", "anyOf", "oneOf", "allOf")):
        return schema
    return {**schema, "type": "object"}


def properties_of(
    schema: dict[str, Any], root: Mapping[str, Any]
) -> list[tuple[str, dict[str, Any], bool]]:
    """(name, schema, whether it is required) of an object's properties, in the schema's order."""
    found: Any = schema
    if isinstance(where := schema.get("$ref"), str):
        found = resolve_reference(where, root)
    found = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    properties, required = found.get("properties"), found.get("required")
    needed = cast("list[Any]", required) if isinstance(required, list) else []
    if not isinstance(properties, dict):
        return []
    return [
        (name, _part_alone(part, root), name in needed)
        for name, part in cast("dict[str, Any]", properties).items()
    ]


def _part_alone(part: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a schema, with what it refers to in the root: definitions, or another part."""
    own = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
    where = own.get("$ref")
    if isinstance(where, str) and not re.match(r"#/(\$defs|definitions)/", where):
        target = resolve_reference(where, root)
        if isinstance(target, dict):
            rest = {word: value for word, value in own.items() if word != "$ref"}
            own = {**cast("dict[str, Any]", target), **rest}
    shared = {word: root[word] for word in ("$defs", "definitions") if word in root}
    return {**shared, **own}


def string_choices(schema: dict[str, Any]) -> list[str]:
    """The texts that a schema allows, where it lists them all; else none."""
    values: Any = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or not values:
        return []
    found = [value for value in cast("list[Any]", values) if isinstance(value, str) and value]
    return found if len(found) == len(cast("list[Any]", values)) else []
