"""Gemma 4's calls, whose strings stand between marks of their own.

<|tool_call>call:sky{at:<|"|>Rome<|"|>,days:[1,2],more:{deep:true}}<tool_call|>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from worker.chat.dialects.sample import NAME, CallSample
from worker.chat.message import Tool
from worker.chat.reading.answer import CallGrammar, Syntax, SyntaxMarks
from worker.chat.reading.call_grammar import Lark, object_schema, properties_of, row, string_choices
from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import MAX_DEPTH, json_value
from worker.chat.reading.parameters import escape, leads_nowhere, resolve_reference, types_of
from worker.chat.reading.source import DamagedError, Steps, TextSource

_MAX_DEPTH = 8  # of schemas in each other; what lies deeper may be anything
_PLAIN = ("boolean", "integer", "null", "number")


class GemmaObjects:
    def __init__(self, lark: Lark, quote: str) -> None:
        """quote: the text around strings"""
        self._lark = lark
        self._quote = quote
        self._any = ""
        self._referred: dict[str, str] = {}  # rules of what references lead to

    def of(self, schema: dict[str, Any]) -> str:
        self._referred = {}
        return self._value(schema, schema, 0)

    def _value(self, schema: Any, root: Mapping[str, Any], depth: int) -> str:
        if isinstance(schema, dict) and isinstance(
            where := cast("dict[str, Any]", schema).get("$ref"), str
        ):
            return self._reference(where, root)
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return self._anything()
        found = cast("dict[str, Any]", schema)
        for word in ("anyOf", "oneOf"):
            if isinstance(choices := found.get(word), list):
                parts = [self._value(c, root, depth + 1) for c in cast("list[Any]", choices)]
                return self._lark.one_of(parts)
        if texts := string_choices(found):
            return self._lark.one_of([self._string(self._lark.text(text)) for text in texts])
        types = types_of(found, root)
        parts = [self._of_type(name, found, root, depth) for name in sorted(types)]
        return self._lark.one_of(parts) if len(parts) > 1 else parts[0]

    def _reference(self, where: str, root: Mapping[str, Any]) -> str:
        """One rule for each place, however many ways lead there, itself among them."""
        if where not in self._referred:
            if leads_nowhere(where, root):
                return self._anything()
            self._referred[where] = name = self._lark.later()
            self._lark.define(name, self._value(resolve_reference(where, root), root, 0))
        return self._referred[where]

    def _of_type(
        self, name: str, schema: dict[str, Any], root: Mapping[str, Any], depth: int
    ) -> str:
        if name == "object" and properties_of(schema, root):
            return self._object(schema, root, depth)
        if name == "array":
            items: Any = schema.get("items")
            return self._list(self._value(items, root, depth + 1) if items else self._anything())
        if name == "string":
            return self._string(None)
        if name in _PLAIN:
            return self._lark.json({"type": name}, "a plain value")
        return self._free_object() if name == "object" else self._anything()

    def _object(self, schema: dict[str, Any], root: Mapping[str, Any], depth: int) -> str:
        parts = [
            (row(self._lark.text(f"{name}:"), self._value(part, root, depth + 1)), is_needed)
            for name, part, is_needed in properties_of(schema, root)
        ]
        return row('"{"', self._lark.any_order(parts, '","'), '"}"')

    def _list(self, item: str) -> str:
        named = self._lark.rule(item)
        return f'"[" ({named} ("," {named})*)? "]"'

    def _string(self, text: str | None) -> str:
        quote = self._lark.text(self._quote)
        if text is None:
            return row(quote, self._lark.until(self._quote))
        return row(quote, text, quote)

    def _free_object(self) -> str:
        pair = self._lark.rule(f"/[A-Za-z_][A-Za-z0-9_-]{{0,63}}:/ {self._anything()}")
        return f'"{{" ({pair} ("," {pair})*)? "}}"'

    def _anything(self) -> str:
        """Any value; one rule that leads to itself."""
        if not self._any:
            self._any = self._lark.later()
            plain = self._lark.json({"type": list(_PLAIN)}, "a plain value")
            kinds = (plain, self._string(None), self._list(self._any), self._free_object())
            self._lark.define(self._any, " | ".join(kinds))
        return self._any


_CHANNEL, _CHANNEL_END = "<|channel>", "<channel|>"
OPEN, CLOSE, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
_MAX_KEY = 256


class Gemma(Syntax, frozen=True):
    @property
    def marks(self) -> SyntaxMarks:
        # Channels are opened or closed where there is none, too.
        return SyntaxMarks(
            "gemma",
            opens=(OPEN,),
            markers=(OPEN, CLOSE, QUOTE, _CHANNEL, _CHANNEL_END),
            silent=(_CHANNEL, _CHANNEL_END),
            anywhere=True,
        )

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:
        objects = GemmaObjects(lark, QUOTE)
        close = lark.text(CLOSE)
        call = lark.one_of(
            [
                row(lark.text(f"call:{tool.name}"), objects.of(object_schema(tool)), close)
                for tool in tools
            ]
        )
        return CallGrammar(OPEN, lark.again(call, OPEN, one=one))

    def read(self, source: TextSource, calls: Calls) -> Steps[None]:
        yield from source.expect(OPEN)
        yield from source.space()
        yield from source.expect("call:")
        yield from source.space()
        name, _ = yield from source.until("{", fits=lambda text: calls.may_be(text.strip()))
        calls.begin(name.strip())
        yield from self._object(source, calls, 1)
        calls.end()
        yield from source.space()
        yield from source.close(CLOSE)

    def _object(self, source: TextSource, calls: Calls, depth: int) -> Steps[None]:
        """After its `{`."""
        is_first = True
        calls.add("{")
        while True:
            yield from source.space()
            if is_first and (yield from source.one_of("}")) is not None:
                break
            key = yield from self._key(source)
            calls.add(f'{"" if is_first else ", "}"{escape(key)}": ')
            is_first = False
            yield from self._value(source, calls, depth)
            yield from source.space()
            if (yield from source.expect(",", "}")) == "}":
                break
        calls.add("}")

    def _key(self, source: TextSource) -> Steps[str]:
        def fits(text: str) -> bool:
            return len(text) <= _MAX_KEY

        mark = yield from source.one_of(QUOTE, '"')
        key, _ = yield from source.until(mark or ":", fits=fits)
        if mark:
            yield from source.space()
            yield from source.expect(":")
            return key
        return key.strip()

    def _list(self, source: TextSource, calls: Calls, depth: int) -> Steps[None]:
        """After its `[`."""
        calls.add("[")
        is_first = True
        while True:
            yield from source.space()
            if is_first and (yield from source.one_of("]")) is not None:
                break
            calls.add("" if is_first else ", ")
            is_first = False
            yield from self._value(source, calls, depth)
            yield from source.space()
            if (yield from source.expect(",", "]")) == "]":
                break
        calls.add("]")

    def _value(self, source: TextSource, calls: Calls, depth: int) -> Steps[None]:
        if depth > MAX_DEPTH:
            raise DamagedError
        yield from source.space()
        mark = yield from source.one_of(QUOTE, "{", "[")
        if mark == QUOTE:
            yield from self._string(source, calls)
        elif mark == "{":
            yield from self._object(source, calls, depth + 1)
        elif mark == "[":
            yield from self._list(source, calls, depth + 1)
        else:
            calls.add((yield from json_value(source)).strip())

    def _string(self, source: TextSource, calls: Calls) -> Steps[None]:
        """After its opening mark."""
        calls.add('"')
        while True:
            text, mark = source.take((QUOTE,))
            calls.add(escape(text))
            if mark is not None:
                break
            if source.is_ended:
                raise DamagedError
            yield
        calls.add('"')


def detect(sample: CallSample) -> Gemma | None:
    """By the text before a call."""
    return Gemma() if f"{OPEN}call:{NAME}" in sample.call else None
