"""Fields that ask for a structured answer, to the one Constraint of a request."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec

from worker.errors import RequestError
from worker.grammar.constraint import (
    Constraint,
    choice_constraint,
    regex_constraint,
    schema_constraint,
)
from worker.limits import GRAMMAR
from worker.service.bounds import characters


class StructuredOutputs(msgspec.Struct, kw_only=True):
    """vLLM's one field for all kinds; one of them may be given.

    json         a JSON schema, or its text
    regex        a regular expression for the whole answer, without look-around
    choice       the texts that the answer may be
    grammar      GBNF
    json_object  true: any JSON object
    """

    json: dict[str, Any] | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class ConstraintFields(msgspec.Struct, kw_only=True):
    """What APIs call it; null: not given. The first that is given counts.

    grammar             GBNF that the answer must match
    json_schema         a JSON schema that the answer must match
    response_format     of type text, json_object or json_schema with its schema
    structured_outputs  vLLM's field
    guided_json         an older name of structured_outputs.json
    guided_regex        an older name of structured_outputs.regex
    guided_choice       an older name of structured_outputs.choice
    """

    grammar: Annotated[str | None, characters(GRAMMAR.most)] = None
    json_schema: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None


def constraint_of(fields: ConstraintFields) -> Constraint | None:
    """The first that is given, in the order of the fields. Raises RequestError.

    It is not compiled yet.
    """
    if fields.grammar:
        return Constraint(kind="gbnf", text=fields.grammar, param="grammar")
    if fields.json_schema is not None:
        return schema_constraint(fields.json_schema, "json_schema")
    kind = fields.response_format
    if kind and kind.get("type") not in (None, "text"):
        return _of_response_format(kind)
    asked = fields.structured_outputs
    if asked is not None:
        return _of_outputs(asked, "structured_outputs")
    older = StructuredOutputs(
        json=fields.guided_json, regex=fields.guided_regex, choice=fields.guided_choice
    )
    for field in ("json", "regex", "choice"):
        if getattr(older, field) is not None:
            return _of_outputs(older, f"guided_{field}")
    return None


def _of_response_format(kind: dict[str, Any]) -> Constraint:
    name = "response_format"
    if kind.get("type") == "json_object":
        return schema_constraint(_object(kind.get("schema")), name)
    if kind.get("type") == "json_schema":
        schema = _object((_object(kind.get("json_schema")) or {}).get("schema"))
        if schema is not None:
            return schema_constraint(schema, name)
    raise RequestError(
        "response_format must be text, json_object or json_schema with a schema.", param=name
    )


def _of_outputs(asked: StructuredOutputs, name: str) -> Constraint | None:
    if asked.json is not None:
        schema = asked.json
        if isinstance(schema, str):
            try:
                schema = msgspec.json.decode(schema)
            except (msgspec.DecodeError, RecursionError):
                schema = None
        if not isinstance(schema, dict):
            raise RequestError(f"{name} holds no JSON schema.", param=name)
        return schema_constraint(cast("dict[str, Any]", schema), name)
    if asked.regex is not None:
        return regex_constraint(asked.regex, name)
    if asked.choice is not None:
        return choice_constraint(asked.choice, name)
    if asked.grammar is not None:
        return Constraint(kind="gbnf", text=asked.grammar, param=name)
    return schema_constraint(None, name) if asked.json_object else None


def _object(value: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
