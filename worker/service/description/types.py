"""JSON schemas in words."""

from __future__ import annotations

from html import escape
from typing import Any

from worker.service.description.schemas import PLACE, JsonSchema


def type_of(schema: JsonSchema) -> str:
    """HTML: what kind of value it is; shapes are links."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(PLACE)
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        kinds = [type_of(each) for each in schema["anyOf"] if each != {"type": "null"}]
        return " or ".join(dict.fromkeys(kinds))
    if "allOf" in schema:
        return type_of(schema["allOf"][0])
    if "prefixItems" in schema:
        return f"list of {', '.join(type_of(each) for each in schema['prefixItems'])}"
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items') or {})}"
    if schema.get("type") == "object":
        each = schema.get("additionalProperties")
        return f"object of {type_of(each)}" if each else "object"
    if "enum" in schema and "type" not in schema:
        return _words(schema["enum"])
    return str(schema.get("type", "anything"))


def limits_of(schema: JsonSchema) -> str:
    """HTML: what a value may be."""
    found: list[str] = []
    if "enum" in schema and ("type" in schema or "anyOf" in schema):
        found.append(_words(schema["enum"]))
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is not None:
        found.append(f"up to {high:,}" if low is None else f"{low:,} to {high:,}")
    elif low is not None:
        found.append(f"{low:,} and above")
    each: JsonSchema = schema.get("items") or {}
    if "maxItems" in schema:
        found.append(f"{schema.get('minItems', 0):,} to {schema['maxItems']:,} of them")
    characters = schema if "maxLength" in schema else each
    if "maxLength" in characters:
        least = characters.get("minLength", 0)
        found.append(f"{least:,} to {characters['maxLength']:,} characters")
    return ", ".join(found)


def _words(values: list[Any]) -> str:
    return ", ".join(f"<code>{escape(str(value))}</code>" for value in values if value is not None)
