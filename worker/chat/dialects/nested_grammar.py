"""The grammar of arguments that are tags in each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from worker.chat.message import Tool
from worker.chat.reading.lark import Lark, properties_of, row, spaced, string_choices
from worker.chat.reading.parameters import types_of

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
            (self._tagged(name, part, root, what, depth), is_needed)
            for name, part, is_needed in properties_of(schema, root)
        ]
        return self._lark.any_order(values, "WS?")

    def _tagged(
        self, name: str, schema: Any, root: Mapping[str, Any], what: str, depth: int
    ) -> str:
        """A value between its tags."""
        lark, types = self._lark, types_of(schema, root)
        begin, end = lark.text(f"{self._mark}<{name}>"), f"{self._mark}</{name}>"
        if depth > _MAX_DEPTH or not isinstance(schema, dict) or len(types) != 1:
            return row(begin, lark.until(end))
        found, (kind,) = cast("dict[str, Any]", schema), types
        if kind == "object" and properties_of(found, root):
            return spaced(begin, self._parts(found, root, what, depth + 1), lark.text(end))
        if kind == "array":
            item = lark.rule(self._tagged(ITEM, found.get("items"), root, what, depth + 1))
            return spaced(begin, f"({item} WS?)*", lark.text(end))
        if choices := string_choices(found):
            return row(begin, lark.one_of(list(map(lark.text, choices))), lark.text(end))
        if kind in ("string", "object"):
            return row(begin, lark.until(end))
        return row(begin, lark.json(found, what), lark.text(end))
