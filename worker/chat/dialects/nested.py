"""Calls whose arguments are tags in each other, all behind a mark of their own: MiniMax M3.

]<]x[>[<tool_call>
]<]x[>[<invoke name="sky">]<]x[>[<at>Rome]<]x[>[</at>]<]x[>[<days>]<]x[>[<item>1]<]x[>[</item>
]<]x[>[</days>]<]x[>[</invoke>
]<]x[>[</tool_call>
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from worker.chat.dialects.sample import KEY, NAME, VALUE, CallSample
from worker.chat.message import Tool
from worker.chat.reading.answer import CallGrammar, Syntax, SyntaxMarks
from worker.chat.reading.call_grammar import (
    Lark,
    properties_of,
    repeat,
    row,
    string_choices,
    with_spaces,
)
from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import MAX_DEPTH
from worker.chat.reading.parameters import Parameters, part_of, types_of, value_of
from worker.chat.reading.source import DamagedError, Steps, TextSource

ITEM = "item"  # the name of a list's parts
_MAX_DEPTH = 4  # of schemas in each other; what lies deeper may be any text


class NestedGrammar:
    def __init__(self, lark: Lark, mark: str) -> None:
        """mark: text before each tag"""
        self._lark = lark
        self._mark = mark

    def arguments(self, tool: Tool) -> str:
        """A tool's arguments, one after the other in any order."""
        schema = tool.parameters
        return self._parts(schema, schema, f"tool {tool.name}", 0)

    def _parts(self, schema: dict[str, Any], root: Mapping[str, Any], what: str, depth: int) -> str:
        values = [
            (self._tag(name, part, root, what, depth), is_needed)
            for name, part, is_needed in properties_of(schema, root)
        ]
        return self._lark.any_order(values, "WS?")

    def _tag(self, name: str, schema: Any, root: Mapping[str, Any], what: str, depth: int) -> str:
        """A value between its tags."""
        lark, types = self._lark, types_of(schema, root)
        begin, end = lark.text(f"{self._mark}<{name}>"), f"{self._mark}</{name}>"
        if depth > _MAX_DEPTH or not isinstance(schema, dict) or len(types) != 1:
            return row(begin, lark.until(end))
        found, (kind,) = cast("dict[str, Any]", schema), types
        if kind == "object" and properties_of(found, root):
            return with_spaces(begin, self._parts(found, root, what, depth + 1), lark.text(end))
        if kind == "array":
            item = lark.rule(self._tag(ITEM, found.get("items"), root, what, depth + 1))
            return with_spaces(begin, f"({item} WS?)*", lark.text(end))
        if choices := string_choices(found):
            return row(begin, lark.one_of(list(map(lark.text, choices))), lark.text(end))
        if kind == "string":
            return row(begin, lark.value(end, (f"{self._mark}<",)))
        if kind == "object":
            return row(begin, lark.until(end))
        return row(begin, lark.json(found, what), lark.text(end))


_CALL = re.compile(
    rf'(?P<mark>[^\s<>\w]\S{{2,62}})<(?P<section>\w+)>\s*(?P=mark)<(?P<call>\w+) name="{NAME}">\s*'
    rf"(?P=mark)<{KEY}>{VALUE}(?P=mark)</{KEY}>\s*(?P=mark)</(?P=call)>"
)
_MAX_KEY = 256
_TEXT, _NESTED = frozenset({"string"}), frozenset({"array", "object"})


class NestedTags(Syntax, frozen=True):
    """
    mark     text before each tag
    section  name of the tag around all calls
    call     name of the tag around a call
    """

    mark: str
    section: str
    call: str

    @property
    def marks(self) -> SyntaxMarks:
        opens = self._opens
        name = f"tags in each other after {opens[0]}"
        return SyntaxMarks(name, opens=opens, markers=(self.mark, *opens))

    @property
    def _opens(self) -> tuple[str, str]:
        return f"{self.mark}<{self.section}>", f'{self.mark}<{self.call} name="'

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:
        section, begin = self._opens
        written = NestedGrammar(lark, self.mark)
        end = lark.text(f"{self.mark}</{self.call}>")
        call = lark.one_of(
            [
                with_spaces(lark.text(f'{begin}{tool.name}">'), written.arguments(tool), end)
                for tool in tools
            ]
        )
        close = lark.text(f"{self.mark}</{self.section}>")
        return CallGrammar(section, with_spaces(repeat(call, one=one), close))

    def read(self, source: TextSource, calls: Calls) -> Steps[None]:
        section, begin = self._opens
        yield from source.one_of(section)
        yield from source.space()
        yield from source.expect(begin)
        while True:
            yield from self._call(source, calls)
            yield from source.space()
            if (yield from source.one_of(begin)) is None:
                break
        yield from source.close(f"{self.mark}</{self.section}>")

    def _call(self, source: TextSource, calls: Calls) -> Steps[None]:
        name, _ = yield from source.until('">', fits=lambda text: calls.may_be(text.strip()))
        name = name.strip()
        written = Parameters(source, calls, name)
        schema = calls.tools[name].parameters
        while True:
            yield from source.space()
            yield from source.expect(f"{self.mark}<")
            key, _ = yield from source.until(">", fits=_is_short)
            if key == f"/{self.call}":
                break
            part = part_of(schema, key, schema)
            if types_of(part, schema) == _TEXT:
                yield from written.value(key, f"{self.mark}</{key}>", (f"{self.mark}<",))
            else:
                written.key(key)
                calls.add((yield from self._value(source, written, key, part, schema, 1)))
        written.end()

    def _value(
        self,
        source: TextSource,
        written: Parameters,
        key: str,
        schema: Any,
        root: Mapping[str, Any],
        depth: int,
    ) -> Steps[str]:
        """A value as JSON, after its opening tag; the closing one is read too."""
        if depth > MAX_DEPTH:
            raise DamagedError
        end, types = f"{self.mark}</{key}>", types_of(schema, root)
        if not types & _NESTED:
            text = yield from written.raw(end, (f"{self.mark}<",))
            return value_of(text, types)
        text, found = yield from source.until(end, f"{self.mark}<", fits=_always)
        if found == end:
            return _plain(text, types)
        if text.strip():
            raise DamagedError
        parts: list[tuple[str, str]] = []
        while True:
            name, _ = yield from source.until(">", fits=_is_short)
            part = part_of(schema, name, root)
            value = yield from self._value(source, written, name, part, root, depth + 1)
            parts.append((name, value))
            yield from source.space()
            if (yield from source.expect(end, f"{self.mark}<")) == end:
                return _join(parts, types)


def _is_short(text: str) -> bool:
    return len(text) <= _MAX_KEY


def _always(_text: str) -> bool:
    return True


def _plain(text: str, types: frozenset[str]) -> str:
    """A value without tags inside; an empty one may be an empty list or object."""
    if not text.strip() and "string" not in types:
        empty = next(
            (made for kind, made in (("array", "[]"), ("object", "{}")) if kind in types), ""
        )
        return empty or value_of(text, types)
    return value_of(text, types)


def _join(parts: Sequence[tuple[str, str]], types: frozenset[str]) -> str:
    """Items make a list where one may stand there; other names, an object."""
    are_items = all(name == ITEM for name, _ in parts)
    if "array" in types and (are_items or "object" not in types):
        return f"[{', '.join(value for _, value in parts)}]"
    return (
        "{"
        + ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in parts)
        + "}"
    )


def detect(sample: CallSample) -> NestedTags | None:
    """By what stands around the parts of a call."""
    match = sample.search(_CALL)
    return NestedTags(match["mark"], match["section"], match["call"]) if match else None
