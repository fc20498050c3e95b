"""The grammar of Gemma 4's objects, whose names have no quotation marks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from worker.chat.reading.lark import Lark, properties_of, row, string_choices
from worker.chat.reading.parameters import leads_nowhere, referred, types_of

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
            self._lark.define(name, self._value(referred(where, root), root, 0))
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
