"""Fields that ask for a structured answer, to the one Constraint of a request."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Annotated, Any, cast

import msgspec

from worker import log
from worker.api.intake.bounds import characters
from worker.errors import RequestError
from worker.grammar.client_grammar import grammar_constraint
from worker.grammar.constraint import (
    Constraint,
    choice_constraint,
    regex_constraint,
    schema_constraint,
)
from worker.grammar.wrapped import is_schema, unwrap
from worker.limits import GRAMMAR

_OTHER_FORMS = {"grammar": grammar_constraint, "regex": regex_constraint}  # others' words
_ANY_OBJECT = schema_constraint(None, "format")
_log = log.get("service")


class StructuredOutputs(msgspec.Struct, kw_only=True):
    """vLLM's one field for all kinds.

    json         a JSON schema, or its text
    regex        a regular expression for the whole answer, without look-around
    choice       the texts that the answer may be
    grammar      GBNF, or llguidance's Lark with a rule `start`
    json_object  true: any JSON object
    """

    json: dict[str, Any] | bool | str | None = None
    regex: str | None = None
    choice: list[str | None] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class FormFields(msgspec.Struct, omit_defaults=True):
    """What an object holds that has the form of the answer in `format`.

    format  text, json_object, or json_schema with its schema, which chats have in json_schema
    type, schema, json_schema  those of a format, where a client leaves that word out
    """

    format: dict[str, Any] | None = None
    type: str | None = None
    schema: dict[str, Any] | None = None
    json_schema: dict[str, Any] | None = None


class ConstraintFields(msgspec.Struct, kw_only=True):
    """What APIs call it; null: not given. Those that are given must ask for the same.

    grammar             GBNF that the answer must match, or llguidance's Lark with a rule `start`
    json_schema         a JSON schema that the answer must match, or its text
    schema              another name of json_schema
    response_format     of type text, json_object or json_schema with its schema
    structured_outputs  vLLM's field
    guided_json         an older name of structured_outputs.json
    guided_regex        an older name of structured_outputs.regex
    guided_choice       an older name of structured_outputs.choice
    guided_grammar      an older name of structured_outputs.grammar
    format              where Ollama has it: `json`, or a JSON schema
    text                where the Responses API has it: an object with `format`
    output_config       where Anthropic has it: an object with `format`
    output_format       where Anthropic had it
    """

    grammar: Annotated[str | None, characters(GRAMMAR.most)] = None
    json_schema: dict[str, Any] | bool | str | None = None
    schema: dict[str, Any] | bool | str | None = None
    response_format: str | dict[str, Any] | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | bool | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str | None] | None = None
    guided_grammar: Annotated[str | None, characters(GRAMMAR.most)] = None
    format: Any = None
    text: Any = None
    output_config: Any = None
    output_format: Any = None


_forms_of = attrgetter(*ConstraintFields.__struct_fields__)
_NO_FORMS = _forms_of(ConstraintFields())


def constraint_of(*given: ConstraintFields) -> Constraint | None:
    """The one that the fields ask for, wherever they do; a schema also says that JSON is wanted.

    It is not compiled yet. The log says what of a schema is not held. Raises RequestError, also
    where two fields ask for different answers.
    """
    every: list[Constraint] = []
    for fields in given:
        if _forms_of(fields) != _NO_FORMS:
            every += _all(fields)
    if not every:
        return None
    telling = [made for made in every if made.text != _ANY_OBJECT.text] or every
    made = telling[0]
    for other in telling:
        if (other.kind, other.text) != (made.kind, made.text):
            names = made.param if made.param == other.param else f"{made.param} and {other.param}"
            raise RequestError(f"{names} must ask for one kind of answer.", param=other.param)
    if made.loosened:
        _log.warning("parts of a schema are not held", schema=made.param, parts=[*made.loosened])
    return made


def not_held(constraint: Constraint | None) -> tuple[str, ...]:
    """What the client is told of a constraint that does not hold all of its schema."""
    if constraint is None or not constraint.loosened:
        return ()
    return (f"{constraint.param}: {', '.join(constraint.loosened)} of the schema is not held.",)


def _all(fields: ConstraintFields) -> Iterator[Constraint]:
    if fields.grammar:
        yield grammar_constraint(fields.grammar, "grammar")
    for name in ("json_schema", "schema"):
        if getattr(fields, name) is not None:
            yield _of_schema(getattr(fields, name), name)
    for name, value in _forms(fields):
        made = _of_form(value, name)
        if made is not None:
            yield made
    if fields.structured_outputs is not None:
        yield from _of_outputs(fields.structured_outputs, "structured_outputs")
    older = StructuredOutputs(
        json=fields.guided_json,
        regex=fields.guided_regex,
        choice=fields.guided_choice,
        grammar=fields.guided_grammar,
    )
    yield from _of_outputs(older, "guided_{}")


def _forms(fields: ConstraintFields) -> Iterator[tuple[str, Any]]:
    """Where the forms of answers of all APIs are, and what is there."""
    for name in ("response_format", "format", "output_format"):
        yield name, getattr(fields, name)
    for name in ("text", "output_config"):
        value = getattr(fields, name)
        own = msgspec.structs.asdict(value) if isinstance(value, FormFields) else value
        if isinstance(own, dict):
            own = cast("dict[str, Any]", own)
            bare = {each: own.get(each) for each in ("type", "schema", "json_schema")}
            yield f"{name}.format", own.get("format") or bare


def _of_form(value: Any, name: str) -> Constraint | None:
    """The schema may be in any place where a server reads one, or be all that there is."""
    if not value:
        return None
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return _of_schema(value, name)
    is_object = isinstance(value, dict)
    kind = cast("dict[str, Any]", value) if is_object else {"type": value}
    if is_object and is_schema(kind):
        return _of_schema(kind, name)
    word = kind.get("type")
    if isinstance(word, str) and word in _OTHER_FORMS:
        text = next((kind[each] for each in (word, "value", "pattern") if each in kind), None)
        if not isinstance(text, str):
            raise RequestError(f"{name} of type {word} has no {word}.", param=name)
        return _OTHER_FORMS[word](text, name)
    if word not in (None, "text", "json", "json_object", "json_schema"):
        raise RequestError(
            f"{name} must be text, json_object or json_schema with a schema.", param=name
        )
    found = unwrap({**kind, "type": None}, name, bare=False)
    if found is not None:
        if word == "text":
            raise RequestError(
                f"{name} is of type text and has a schema.",
                param=name,
                hint="Its type must be json_schema.",
            )
        return schema_constraint(found.schema, name, strict=found.strict)
    if word == "json_schema":
        place = "json_schema.schema" if name == "response_format" else "schema"
        raise RequestError(
            f"{name} of type json_schema has no schema.",
            param=name,
            hint=f"It belongs in {name}.{place}.",
        )
    if any(kind.get(each) is not None for each in ("schema", "json_schema")):
        raise RequestError(f"{name} holds no JSON schema.", param=name)
    return schema_constraint(None, name) if word in ("json", "json_object") else None


def _of_schema(value: Any, name: str) -> Constraint:
    found = unwrap(value, name)
    if found is None:
        raise RequestError(f"{name} holds no JSON schema.", param=name)
    return schema_constraint(found.schema, name, strict=found.strict)


def _of_outputs(asked: StructuredOutputs, names: str) -> Iterator[Constraint]:
    """names: the client's, with a place for that of the field where it has one for each"""
    if asked.json is not None:
        yield _of_schema(asked.json, names.format("json"))
    if asked.regex is not None:
        yield regex_constraint(asked.regex, names.format("regex"))
    if asked.choice is not None:
        choices = [choice for choice in asked.choice if choice is not None]
        yield choice_constraint(choices, names.format("choice"))
    if asked.grammar is not None:
        yield grammar_constraint(asked.grammar, names.format("grammar"))
    if asked.json_object:
        yield schema_constraint(None, names.format("json_object"))
