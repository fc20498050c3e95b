"""Bodies as programs write them."""

from __future__ import annotations

import httpx
import pytest

from tests.support import http
from tests.support.programs.processes import Server

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
