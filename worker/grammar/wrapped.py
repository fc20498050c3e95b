"""A JSON schema as clients give it: alone, as text, or in one of several wrappings."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from worker.errors import RequestError
from worker.grammar.keywords import HELD, NOT_HELD, TYPES, Schema

# Where OpenAI, llama-server and others look for it; `value` is text-generation-inference's.
_PLACES = ("schema", "json_schema", "value")
_KEYWORDS = (HELD | NOT_HELD) - {"type"}
_MOST_WRAPPINGS = 6


class WrappedSchema(msgspec.Struct, frozen=True):
    """What was in the wrapping.

    strict: whether the client asked for all of it, or nothing
    """

    schema: Schema | bool
    strict: bool


def unwrap(value: Any, param: str, *, bare: bool = True) -> WrappedSchema | None:
    """The schema in a client's value; None: there is none. Raises RequestError for broken text.

    bare: the value may be a schema that says nothing of what is valid; else only one behind the
    word `schema` may
    """
    strict = False
    for _ in range(_MOST_WRAPPINGS):
        if isinstance(value, str):
            value = _read(value, param)
        if isinstance(value, bool):
            return WrappedSchema(value, strict)
        if not isinstance(value, dict):
            return None
        own = cast("Schema", value)
        if is_schema(own):
            return WrappedSchema(own, strict)
        strict = strict or own.get("strict") is True
        places = [each for each in _PLACES if own.get(each) is not None]
        if not places:
            return WrappedSchema(own, strict) if bare else None
        bare, value = places[0] == "schema", own[places[0]]
        for other in places[1:]:
            _check_same(value, own[other], param)
    return None


def is_schema(value: Schema) -> bool:
    """Whether it says something of what is valid, or nothing at all."""
    kind = value.get("type")
    is_typed = isinstance(kind, list) or kind in (*TYPES, "integer")
    return not value or is_typed or bool(value.keys() & _KEYWORDS)


def _check_same(first: Any, second: Any, param: str) -> None:
    """Raise RequestError where two places hold different schemas."""
    found = [unwrap(value, param, bare=False) for value in (first, second)]
    schemas = [each.schema for each in found if each is not None]
    if len(schemas) == 2 and schemas[0] != schemas[1]:
        raise RequestError(f"{param} holds two schemas that differ.", param=param)


def _read(text: str, param: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"{param} holds a text that is no JSON: {error}.", param=param) from None
