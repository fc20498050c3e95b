"""JSON schemas to grammars: llama-cpp-python's own converter, behind limits."""

from __future__ import annotations

import json
from typing import Any

from llama_cpp.llama_grammar import JSON_GBNF, json_schema_to_gbnf

from worker.engine.request import MAX_GRAMMAR_CHARS
from worker.errors import RequestError

MAX_SCHEMA_CHARS = 65_536
MAX_REPEATS = 1_000
MAX_DEPTH = 64
_REPEATS = ("minItems", "maxItems", "minLength", "maxLength")


def grammar_of(schema: dict[str, Any] | None, param: str) -> str:
    """GBNF for a JSON schema, or for any JSON object.

    Raises RequestError for a schema that is deep, remote or explosive.
    """
    if schema is None:
        return str(JSON_GBNF)
    _check(schema, param)
    text = json.dumps(schema)
    if len(text) > MAX_SCHEMA_CHARS:
        raise RequestError(f"{param} is longer than {MAX_SCHEMA_CHARS} characters.", param=param)
    try:
        grammar = json_schema_to_gbnf(text)
    except Exception:  # noqa: BLE001  (the converter raises whatever it meets)
        raise RequestError(
            f"{param} is not a schema that can be turned into a grammar.", param=param
        ) from None
    if len(grammar) > MAX_GRAMMAR_CHARS:
        raise RequestError(f"{param} makes too large a grammar.", param=param)
    return grammar


def _check(schema: dict[str, Any], param: str) -> None:
    """Refuse what would make the converter fetch, recurse or repeat without end."""
    stack: list[tuple[Any, int]] = [(schema, 0)]
    while stack:
        value, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise RequestError(f"{param} is nested deeper than {MAX_DEPTH}.", param=param)
        if isinstance(value, list):
            stack += [(item, depth + 1) for item in value]  # pyright: ignore
        if not isinstance(value, dict):
            continue
        reference = value.get("$ref")  # pyright: ignore
        if isinstance(reference, str) and not reference.startswith("#"):
            raise RequestError(f"{param} refers to another document.", param=param)
        for name in _REPEATS:
            count = value.get(name)  # pyright: ignore
            if isinstance(count, int | float) and count > MAX_REPEATS:
                raise RequestError(f"{param} has a {name} above {MAX_REPEATS}.", param=param)
        stack += [(item, depth + 1) for item in value.values()]  # pyright: ignore
