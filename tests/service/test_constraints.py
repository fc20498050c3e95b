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
from tests.support.programs.processes import Server
from worker.errors import RequestError
from worker.service.constraints import ConstraintFields, StructuredOutputs, constraint_of

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
    ],
    ids=str,
)
def test_other_kinds(server: Server, fields: dict[str, Any], pattern: str) -> None:
    """The whole text matches."""
    choice = server.post(BODY | fields).json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert re.fullmatch(pattern, choice["text"])


def test_the_first_field_counts() -> None:
    """In the order that the documentation gives; what says nothing is passed over."""
    outputs = StructuredOutputs(regex="a")
    both = ConstraintFields(json_schema={"const": 1}, structured_outputs=outputs)
    first, second = constraint_of(both), constraint_of(ConstraintFields(structured_outputs=outputs))
    assert first is not None
    assert second is not None
    assert (first.kind, second.kind) == ("json_schema", "regex")
    assert constraint_of(ConstraintFields(response_format={"type": "text"})) is None
    assert constraint_of(ConstraintFields(structured_outputs=StructuredOutputs())) is None
    with pytest.raises(RequestError, match="guided_json"):
        constraint_of(ConstraintFields(guided_json="[1]"))
