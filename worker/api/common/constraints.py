"""Fields that ask for a structured answer, to the one Constraint of a request."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from worker import log
from worker.api.common.bounds import characters
from worker.errors import RequestError
from worker.grammar.constraint import (
    Constraint,
    choice_constraint,
    regex_constraint,
    schema_constraint,
)
from worker.grammar.lark import grammar_constraint
from worker.grammar.wrapped import is_schema, unwrapped
from worker.limits import GRAMMAR

_FORMAT = "response_format"
_PLACE = f"{_FORMAT}.json_schema.schema"

_log = log.get("service")


class StructuredOutputs(msgspec.Struct, kw_only=True):
    """vLLM's one field for all kinds; one of them may be given.

    json         a JSON schema, or its text
    regex        a regular expression for the whole answer, without look-around
    choice       the texts that the answer may be
    grammar      GBNF, or llguidance's Lark with a rule `start`
    json_object  true: any JSON object
    """

    json: dict[str, Any] | bool | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class ConstraintFields(msgspec.Struct, kw_only=True):
    """What APIs call it; null: not given. The first that is given counts.

    grammar             GBNF that the answer must match, or llguidance's Lark with a rule `start`
    json_schema         a JSON schema that the answer must match, or its text
    schema              another name of json_schema
    response_format     of type text, json_object or json_schema with its schema
    structured_outputs  vLLM's field
    guided_json         an older name of structured_outputs.json
    guided_regex        an older name of structured_outputs.regex
    guided_choice       an older name of structured_outputs.choice
    guided_grammar      an older name of structured_outputs.grammar
    """

    grammar: Annotated[str | None, characters(GRAMMAR.most)] = None
    json_schema: dict[str, Any] | bool | str | None = None
    schema: dict[str, Any] | bool | str | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | bool | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: Annotated[str | None, characters(GRAMMAR.most)] = None


def constraint_of(fields: ConstraintFields) -> Constraint | None:
    """The first that is given, in the order of the fields. Raises RequestError.

    It is not compiled yet. The log says what of a schema is not held.
    """
    made = _first(fields)
    if made is not None and made.loosened:
        _log.warning("parts of a schema are not held", schema=made.param, parts=[*made.loosened])
    return made


def not_held(constraint: Constraint | None) -> tuple[str, ...]:
    """What the client is told of a constraint that does not hold all of its schema."""
    if constraint is None or not constraint.loosened:
        return ()
    return (f"{constraint.param}: {', '.join(constraint.loosened)} of the schema is not held.",)


def _first(fields: ConstraintFields) -> Constraint | None:
    if fields.grammar:
        return grammar_constraint(fields.grammar, "grammar")
    for name in ("json_schema", "schema"):
        if getattr(fields, name) is not None:
            return _of_schema(getattr(fields, name), name)
    made = _of_response_format(fields.response_format or {})
    if made is not None:
        return made
    asked = fields.structured_outputs
    if asked is not None:
        return _of_outputs(asked, "structured_outputs")
    older = StructuredOutputs(
        json=fields.guided_json,
        regex=fields.guided_regex,
        choice=fields.guided_choice,
        grammar=fields.guided_grammar,
    )
    for field in ("json", "regex", "choice", "grammar"):
        if getattr(older, field) is not None:
            return _of_outputs(older, f"guided_{field}")
    return None


def _of_response_format(kind: dict[str, Any]) -> Constraint | None:
    """The schema may be in any place where a server reads one, or be all that there is."""
    name = kind.get("type")
    if kind and is_schema(kind):
        return _of_schema(kind, _FORMAT)
    found = unwrapped({**kind, "type": None}, _FORMAT, bare=False)
    if name not in (None, "text", "json", "json_object", "json_schema"):
        raise RequestError(
            f"{_FORMAT} must be text, json_object or json_schema with a schema.", param=_FORMAT
        )
    if found is not None:
        if name == "text":
            raise RequestError(
                f"{_FORMAT} is of type text and has a schema.",
                param=_FORMAT,
                hint="Its type must be json_schema.",
            )
        return schema_constraint(found.schema, _FORMAT, strict=found.strict)
    if name == "json_schema":
        raise RequestError(
            f"{_FORMAT} of type json_schema has no schema.",
            param=_FORMAT,
            hint=f"It belongs in {_PLACE}.",
        )
    return schema_constraint(None, _FORMAT) if name in ("json", "json_object") else None


def _of_schema(value: Any, name: str) -> Constraint:
    found = unwrapped(value, name)
    if found is None:
        raise RequestError(f"{name} holds no JSON schema.", param=name)
    return schema_constraint(found.schema, name, strict=found.strict)


def _of_outputs(asked: StructuredOutputs, name: str) -> Constraint | None:
    if asked.json is not None:
        return _of_schema(asked.json, name)
    if asked.regex is not None:
        return regex_constraint(asked.regex, name)
    if asked.choice is not None:
        return choice_constraint(asked.choice, name)
    if asked.grammar is not None:
        return grammar_constraint(asked.grammar, name)
    return schema_constraint(None, name) if asked.json_object else None
