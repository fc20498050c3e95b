"""Bodies as programs write them."""

from __future__ import annotations

from typing import Literal

import httpx
import msgspec
import pytest

from tests.support import http
from tests.support.cases import for_each
from tests.support.programs.processes import Server
from worker.api.intake.body import struct_of
from worker.errors import RequestError

PROMPT = '"prompt": "Hello"'


def post(server: Server, fields: str) -> httpx.Response:
    """The answer to a prompt with these fields, as they are written."""
    return http.post(f"{server.url}/v1/completions", content=f"{{{PROMPT}, {fields}}}")


@pytest.mark.parametrize(
    "fields",
    [
        '"max_tokens": 2.0, "top_k": 1e20, "seed": 1e18',
        '"max_tokens": 1e17, "stop": ["e", "o", "a"]',
        '"max_tokens": 2.0, "n": 1.0, "temperature": 0.5, "logit_bias": {"5": 1.0}',
        '"max_tokens": 2, "logit_bias": {"5": "-1.5", "6": "1e2"}',
        '"max_tokens": -2, "stop": ["e", "o", "a"]',
    ],
)
def test_whole_numbers_with_a_point(server: Server, fields: str) -> None:
    """They are integers, however large."""
    answer = post(server, fields)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ('"max_tokens": 2.5', "max_tokens"),
        ('"max_tokens": 2.0, "top_k": "5"', "top_k"),
        ('"seed": 1e30', "seed"),
        ('"max_tokens": -3', "max_tokens"),
        ('"logit_bias": {"5": "much"}', "logit_bias"),
        ('"logit_bias": {"5": "nan"}', "logit_bias"),
        ('"n": 1e20', "n"),
    ],
)
def test_other_numbers(server: Server, fields: str, name: str) -> None:
    """What is no integer, or none in its limits, is refused by its name."""
    answer = post(server, fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == name


class Cat(msgspec.Struct, tag_field="type", tag="cat", forbid_unknown_fields=True):
    says: Literal["meow"] = "meow"


class Dog(msgspec.Struct, tag_field="type", tag="dog"):
    """Another one."""


class Zoo(msgspec.Struct):
    names_places = True

    animals: list[Cat | Dog]


@for_each(
    ("animal", "said", "param"),
    [
        ('{"type": 5}', "animals[0].type must be a text.", "type"),
        ('{"type": "cow"}', "animals[0].type cannot be 'cow'.", "type"),
        ('{"type": "cat", "says": "moo"}', "animals[0].says cannot be 'moo'.", "says"),
        ('{"type": "cat", "age": 5}', "animals[0].age is no field of this body.", "age"),
        ("{}", "type is missing in animals[0].", "type"),
        ("5", "animals[0] must be an object, not a whole number.", ""),
    ],
)
def test_sentences(animal: str, said: str, param: str) -> None:
    """What is wrong is told in one sentence that begins with the field."""
    with pytest.raises(RequestError) as caught:
        struct_of(bytearray(f'{{"animals": [{animal}]}}'.encode()), Zoo)
    assert caught.value.message == said
    assert caught.value.param == ".".join(filter(None, ("animals[0]", param)))


def test_two_codings(server: Server) -> None:
    """They are refused, on two lines as on one."""
    codings = [("content-encoding", "identity"), ("content-encoding", "gzip")]
    refused = httpx.post(f"{server.url}/v1/completions", content=b"{}", headers=codings)
    assert refused.status_code == 415
    assert "packed as identity, gzip" in refused.text
