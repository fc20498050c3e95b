"""Structured answers over HTTP: each field that asks for one, whole and streamed."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import pytest

from benchmarks.constraints.tools import TOOLS
from tests.support import http
from tests.support.cases import for_each
from tests.support.programs.processes import Server
from worker.api.intake.constraints import ConstraintFields, StructuredOutputs, constraint_of
from worker.errors import RequestError
from worker.grammar.constraint import schema_constraint

SCHEMA = TOOLS["merge"]
# Quotes and brackets are liked, so that the random model's texts end.
BODY: dict[str, Any] = {
    "prompt": "Hello", "max_tokens": 400, "seed": 3, "temperature": 1, "ignore_eos": False,
    "logit_bias": {str(ord(char) + 3): 4 for char in '"}'},
}  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "json_schema": {"json_schema": SCHEMA},
    "response_format": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    },
    "structured_outputs": {"structured_outputs": {"json": SCHEMA}},
    "guided_json": {"guided_json": json.dumps(SCHEMA)},
}


def is_held(text: str) -> bool:
    """Whether it is valid, by another reader's judgement."""
    jsonschema.validate(json.loads(text), SCHEMA)  # pyright: ignore[reportUnknownMemberType]
    return True


@pytest.mark.parametrize("way", WAYS)
def test_schemas(server: Server, way: str) -> None:
    """An answer that ends is valid."""
    choice = server.post(BODY | WAYS[way]).json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert is_held(choice["text"])


def test_streamed_and_beside_each_other(server: Server) -> None:
    """Several continuations of one request, streamed beside other requests, are valid each."""

    def ask(seed: int) -> list[str]:
        body = BODY | WAYS["json_schema"] | {"n": 2, "seed": seed, "stream": True}
        texts = ["", ""]
        with http.stream("POST", server.url + "/v1/completions", json=body) as answer:
            for line in answer.read().decode().split("\n\n"):
                if line.startswith("data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        texts[choice["index"]] += choice["text"]
        return texts

    with ThreadPoolExecutor(4) as pool:
        texts = [text for both in pool.map(ask, range(4)) for text in both]
    assert len(set(texts)) > 1
    assert all(is_held(text) for text in texts)


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"structured_outputs": {"regex": "[ab]{3}-x"}}, "[ab]{3}-x"),
        ({"guided_regex": "(foo|bar)+!"}, "(foo|bar)+!"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
        ({"guided_choice": ["a.b", "c*"]}, r"a\.b|c\*"),
        ({"structured_outputs": {"grammar": 'root ::= [0-9] root | "."'}}, r"[0-9]*\."),
        ({"structured_outputs": {"json_object": True}}, r"(?s)\{.*\}"),
        ({"grammar": 'root ::= "a" [b-d]{2}'}, "a[b-d]{2}"),
        ({"guided_grammar": 'root ::= "a" [b-d]{2}'}, "a[b-d]{2}"),
        ({"guided_grammar": 'start: "a" /[b-d]{2}/'}, "a[b-d]{2}"),
        ({"structured_outputs": {"grammar": '%llguidance {}\nstart: "a"{3} b\nb: "b"'}}, "aaab"),
        ({"grammar": 'start: "x" %json {"enum": [1, 2]}'}, "x[12]"),
    ],
    ids=str,
)
def test_other_kinds(server: Server, fields: dict[str, Any], pattern: str) -> None:
    """The whole text matches."""
    choice = server.post(BODY | fields).json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert re.fullmatch(pattern, choice["text"])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"json_schema": {"const": 1}, "structured_outputs": StructuredOutputs(regex="a")},
         "json_schema and structured_outputs must"),
        ({"structured_outputs": StructuredOutputs(regex="a", choice=["b", None])},
         "structured_outputs must"),
        ({"guided_regex": "a", "guided_choice": ["a", "b"]}, "guided_regex and guided_choice must"),
        ({"format": {"const": 1}, "text": {"format": {"schema": {"const": 2}}}},
         r"format and text\.format must"),
        ({"response_format": {"schema": {"const": 1}, "json_schema": {"schema": {"const": 2}}}},
         "response_format holds two schemas"),
    ],
)  # fmt: skip
def test_two_different_answers(fields: dict[str, Any], words: str) -> None:
    """Nothing that was asked for is passed over."""
    with pytest.raises(RequestError, match=words):
        constraint_of(ConstraintFields(**fields))


def test_one_answer_in_two_places() -> None:
    """They may say the same, and a schema says more than that JSON is wanted; what says nothing is
    passed over."""
    found = constraint_of(
        ConstraintFields(
            response_format={"type": "json_object"},
            format="json",
            json_schema=REQUIRED,
            output_config={"format": {"type": "json_schema", "schema": REQUIRED}},
        )
    )
    assert found == schema_constraint(REQUIRED, "json_schema")
    assert constraint_of(ConstraintFields(response_format={"type": "text"})) is None
    assert constraint_of(ConstraintFields(structured_outputs=StructuredOutputs())) is None
    with pytest.raises(RequestError, match="guided_json"):
        constraint_of(ConstraintFields(guided_json="[1]"))


REQUIRED: dict[str, Any] = {"type": "object", "required": ["a"]}
FORMATS: list[dict[str, Any]] = [
    {"type": "json_schema", "json_schema": {"name": "x", "schema": REQUIRED}},
    {"type": "json_schema", "json_schema": {"schema": json.dumps(REQUIRED)}},
    {"type": "json_schema", "json_schema": {"json_schema": {"schema": REQUIRED}}},
    {"type": "json_schema", "json_schema": {"schema": {"schema": REQUIRED}}},
    {"type": "json_schema", "json_schema": REQUIRED},
    {"type": "json_schema", "schema": REQUIRED, "name": "x"},
    {"type": "json_object", "json_schema": {"schema": REQUIRED}},
    {"type": "json_object", "json_schema": REQUIRED},
    {"type": "json_object", "schema": REQUIRED},
    {"type": "json_object", "value": REQUIRED},
    {"type": "json", "value": REQUIRED},
    {"schema": REQUIRED},
    {"json_schema": {"schema": REQUIRED}},
    REQUIRED,
]


@pytest.mark.parametrize("form", FORMATS, ids=json.dumps)
def test_a_schema_in_any_place(form: dict[str, Any]) -> None:
    """It is held where any server reads it, one level higher or lower too."""
    expected = schema_constraint(REQUIRED, "response_format")
    assert constraint_of(ConstraintFields(response_format=form)) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"json_schema": {"name": "x", "schema": REQUIRED}},
        {"json_schema": json.dumps(REQUIRED)},
        {"schema": REQUIRED},
        {"guided_json": {"type": "json_schema", "json_schema": {"schema": REQUIRED}}},
        {"structured_outputs": StructuredOutputs(json={"schema": REQUIRED})},
    ],
    ids=str,
)
def test_a_schema_alone(fields: dict[str, Any]) -> None:
    """A field of the schema alone holds one that is wrapped, or text."""
    expected = schema_constraint(REQUIRED, next(iter(fields)))
    assert constraint_of(ConstraintFields(**fields)) == expected


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"type": "json_schema"}, r"has no schema\. It belongs in response_format\.json_schema"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "has no schema"),
        ({"type": "json_schema", "json_schema": {"schema": "{"}}, "a text that is no JSON"),
        ({"type": "text", "schema": REQUIRED}, r"of type text.*must be json_schema"),
        ({"type": "json_object", "schema": 123}, "holds no JSON schema"),
        ({"type": "xml"}, "must be text, json_object or json_schema"),
    ],
    ids=str,
)
def test_no_schema(form: dict[str, Any], why: str) -> None:
    """A format that says one thing and does another is refused with what to do."""
    with pytest.raises(RequestError, match=why) as caught:
        constraint_of(ConstraintFields(response_format=form))
    assert caught.value.param == "response_format"


def test_what_says_nothing_about_an_answer() -> None:
    """Any object, any value, or nothing at all."""

    def text(form: dict[str, Any]) -> str | None:
        made = constraint_of(ConstraintFields(response_format=form))
        return made and made.text

    assert text({}) is text({"type": None}) is text({"type": "text"}) is None
    objects = schema_constraint(None, "response_format").text
    assert text({"type": "json_object"}) == text({"type": "json_object", "schema": None}) == objects
    anything = schema_constraint({}, "response_format").text
    form = {"type": "json_schema", "json_schema": {"schema": {"title": "x"}}}
    assert text(form) == text({"type": "json_object", "schema": {}}) == anything


def test_strict() -> None:
    """What a model may be trusted with is left out, or refused where the client says strict."""
    schema = {"type": "array", "uniqueItems": True}
    for place in ("form", "schema"):
        form: dict[str, Any] = {"type": "json_schema", "json_schema": {"schema": schema}}
        made = constraint_of(ConstraintFields(response_format=form))
        assert made is not None
        assert made.loosened == ("uniqueItems",)
        (form if place == "form" else form["json_schema"])["strict"] = True
        with pytest.raises(RequestError, match="response_format uses uniqueItems"):
            constraint_of(ConstraintFields(response_format=form))


NEVER: dict[str, Any] = {"type": "integer", "not": {"const": 1}}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
ASKED: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/completions", {"prompt": "a", "schema": NEVER}, "schema"),
    ("/v1/chat/completions", CHAT | {"json_schema": json.dumps(NEVER)}, "json_schema"),
    (
        "/v1/chat/completions",
        CHAT | {"response_format": {"type": "json_object", "json_schema": {"schema": NEVER}}},
        "response_format",
    ),
    *(
        ("/v1/responses", {"input": "a", "text": {"format": form}}, "text.format")
        for form in (
            {"type": "json_schema", "name": "x", "schema": NEVER},
            {"type": "json_schema", "json_schema": {"name": "x", "schema": NEVER}},
            {"type": "json_object", "schema": NEVER},
            {"type": "json_schema"},
            NEVER,
        )
    ),
    *(
        (path, body | {name: form}, f"{name}.format")
        for form in ({"schema": NEVER}, {"type": "json_schema", "json_schema": {"schema": NEVER}})
        for path, body, name in (
            ("/v1/responses", {"input": "a"}, "text"),
            ("/v1/messages", CHAT, "output_config"),
            ("/v1/chat/completions", CHAT, "text"),
        )
    ),
    *(
        ("/v1/messages", CHAT | {"output_format": form}, "output_format")
        for form in (
            NEVER,
            {"type": "json_schema", "schema": NEVER},
            {"type": "json_schema", "json_schema": {"schema": NEVER}},
            {"type": "json_schema", "schema": {"schema": NEVER}},
        )
    ),
    *(
        ("/api/chat", {"messages": CHAT["messages"], "format": form}, "format")
        for form in (
            NEVER,
            json.dumps(NEVER),
            {"type": "json_schema", "json_schema": {"schema": NEVER}},
        )
    ),
]
# Each API's place, which the others read too.
PLACES: list[tuple[dict[str, Any], str]] = [
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": NEVER}}},
     "response_format"),
    ({"json_schema": NEVER}, "json_schema"),
    ({"guided_json": NEVER}, "guided_json"),
    ({"structured_outputs": {"json": NEVER}}, "structured_outputs"),
    ({"format": NEVER}, "format"),
    ({"text": {"format": {"type": "json_schema", "schema": NEVER}}}, "text.format"),
    ({"output_config": {"format": {"type": "json_schema", "schema": NEVER}}},
     "output_config.format"),
    ({"output_format": {"type": "json_schema", "schema": NEVER}}, "output_format"),
]  # fmt: skip
EVERYWHERE = [
    (path, body | given, place)
    for given, place in PLACES
    for path, body in {
        "/v1/completions": {"prompt": "a"},
        "/v1/chat/completions": CHAT,
        "/v1/responses": {"input": "a"},
        "/v1/messages": CHAT,
        "/api/chat": {"messages": CHAT["messages"]},
        "/api/generate": {"prompt": "a"},
        "/v1/infer": {"prompt": "a", "max_tokens": 1},
    }.items()
]
IN_OPTIONS = [
    (path, {**body, "options": given}, place)
    for given, place in PLACES
    for path, body in {
        "/api/chat": {"messages": CHAT["messages"]},
        "/api/generate": {"prompt": "a"},
    }.items()
]


@for_each(("path", "body", "field"), [*ASKED, *EVERYWHERE, *IN_OPTIONS])
def test_every_api_looks_there(server: Server, path: str, body: dict[str, Any], field: str) -> None:
    """A schema that cannot be held is refused under the client's name for the field."""
    answer = server.post(body, path)
    assert answer.status_code == 400
    assert re.search(
        rf"{re.escape(field)}\S* (uses not|of type json_schema has no schema)", answer.text
    )
