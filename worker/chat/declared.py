"""Tools as a template gets them, with what it would not show of their schemas put into words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from worker.chat.message import Tool
from worker.chat.reading.parameters import resolve_reference

Declared = dict[str, Any]
# Words as they stand in a prompt, however the template escapes what is between them; in them it
# may escape letters that are not ASCII.
_WORD = re.compile(r"\w+")
_ESCAPED = re.compile(r"\\(?:[ntr]|u[0-9a-fA-F]{4})")
_DEEPEST = 8  # references in each other that are followed
_LONGEST = 20_000  # characters of a schema that is put into words


def declare(tool: Tool, *, describes: bool) -> Declared:
    """With a description in any case: some templates fail where there is none.

    describes  its parameters have one, too
    """
    parameters = tool.parameters
    if describes and isinstance(parameters.get("properties"), dict):
        told: dict[str, Any] = {
            name: {"description": "", **cast("dict[str, Any]", schema)}
            if isinstance(schema, dict)
            else schema
            for name, schema in parameters["properties"].items()
        }
        parameters = {**parameters, "properties": told}
    function = {"name": tool.name, "description": tool.description or ""}
    return {"type": "function", "function": {**function, "parameters": parameters}}


def describe_all(tools: Sequence[Declared], prompt: str) -> list[Declared] | None:
    """The same, where the prompt lacks words of a parameter's schema: its JSON stands in its
    description, with what it refers to. None: the prompt lacks nothing."""
    shown = set(_WORD.findall(_ESCAPED.sub(" ", prompt)))
    found: list[Declared] = []
    is_lost = False
    for tool in tools:
        parameters = tool["function"]["parameters"]
        properties = parameters.get("properties")
        if isinstance(properties, dict):
            told = {
                name: _describe(schema, parameters, shown)
                for name, schema in cast("Mapping[str, Any]", properties).items()
            }
            if told != properties:
                is_lost = True
                function = {**tool["function"], "parameters": {**parameters, "properties": told}}
                tool = {**tool, "function": function}
        found.append(tool)
    return found if is_lost else None


def _describe(schema: Any, root: Mapping[str, Any], shown: set[str]) -> Any:
    if not isinstance(schema, dict):
        return schema
    whole = cast("dict[str, Any]", _follow(schema, root, ()))
    words = (word for text in _texts(whole) for word in _WORD.findall(text))
    if all(word in shown or not word.isascii() for word in words):
        return cast("Any", schema)
    text = json.dumps(whole, ensure_ascii=False)
    if len(text) > _LONGEST:
        return cast("Any", schema)
    description = " ".join(
        filter(None, (str(whole.get("description") or ""), "JSON schema:", text))
    )
    return {**whole, "description": description}


def _follow(value: Any, root: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """With what its references lead to, but for those that lead back or too far."""
    if isinstance(value, list):
        return [_follow(each, root, names) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    own = cast("dict[str, Any]", value)
    name = own.get("$ref")
    if isinstance(name, str) and name not in names and len(names) < _DEEPEST:
        target = resolve_reference(name, root)
        if isinstance(target, dict):
            rest = {key: each for key, each in own.items() if key != "$ref"}
            whole = {**cast("dict[str, Any]", target), **rest}
            return _follow(whole, root, (*names, name))
    return {key: _follow(each, root, names) for key, each in own.items()}


def _texts(schema: Any) -> Iterator[str]:
    """Names of properties, descriptions, and texts that may be values."""
    if isinstance(schema, list):
        for each in cast("list[Any]", schema):
            yield from _texts(each)
    if not isinstance(schema, dict):
        return
    for key, value in cast("dict[str, Any]", schema).items():
        if key == "properties" and isinstance(value, dict):
            yield from cast("dict[str, Any]", value)
        if key in ("enum", "const", "description"):
            for each in cast("list[Any]", value if isinstance(value, list) else [value]):
                if isinstance(each, str):
                    yield each
        else:
            yield from _texts(value)
