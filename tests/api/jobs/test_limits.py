"""What a job may ask for: the original worker's limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.jobs.client import GREEDY, error_of, execute, types
from tests.service.bodies import BAD_BODIES, BIG
from tests.support import http
from tests.support.cases import for_each
from tests.support.programs.processes import Server, serving

BAD_FIELDS: list[tuple[str, object]] = [
    ("prompt", None),
    ("prompt", ""),
    ("prompt", ["a"]),
    ("prompt", "a" * 32_769),
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 2_049),
    ("max_tokens", BIG),
    ("max_tokens", "5"),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("repetition_penalty", 2.1),
    ("repetition_penalty", 0),
    ("repeat_penalty", 50),
    ("seed", 2**64),
    ("stop", ["a"] * 5),
    ("stop", [""]),
    ("stop", ""),
    ("stop", ["a" * 101]),
    ("stop", {}),
    ("job_id", ""),
    ("job_id", "a" * 129),
    ("job_id", "../x"),
    ("job_id", "a\nb"),
    ("job_id", 5),
    ("operation", "model_download"),
    ("operation", 1),
    ("stream", "yes"),
    ("grammar", "root ::= ("),
]


@for_each(("field", "value"), BAD_FIELDS)
@for_each("path", ["/execute", "/v1/jobs", "/v1/infer"])
def test_bad_field(server: Server, path: str, field: str, value: object) -> None:
    """A request outside the original's limits is INVALID_REQUEST, and the field is named."""
    error = error_of(server.post({**GREEDY, field: value}, path), 400)
    assert (error["code"], error["param"], error["retriable"]) == ("INVALID_REQUEST", field, False)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "a" * 700, "max_tokens": 1},
        {"temperature": 2, "top_k": 2**31 - 1, "top_p": 1, "min_p": 0, "seed": 0},
        {"stop": ["a" * 100] * 4, "repetition_penalty": 2, "seed": -1},
        {"temperature": None, "top_p": None, "stop": None, "job_id": None, "seed": None},
        {"unknown": {"x": [1]}, "worker_id": "w", "device": "CPU-0"},
    ],
)
def test_limits_are_inclusive(server: Server, fields: dict[str, Any]) -> None:
    """What the original accepts is accepted; null and unknown fields are not given."""
    assert types(execute(server, **fields))[-1] == "end"


@for_each("path", ["/execute", "/cancel"])
@for_each("name", BAD_BODIES)
def test_bad_body(server: Server, path: str, name: str) -> None:
    """A body that is not the JSON we read is INVALID_REQUEST."""
    body = BAD_BODIES[name].replace(b'"prompt"', b'"job_id"' if path == "/cancel" else b'"prompt"')
    answer = http.post(server.url + path, content=body)
    if path == "/cancel" and answer.status_code == 202:
        return  # fields that /cancel does not know
    assert error_of(answer, 400)["code"] == "INVALID_REQUEST"


def test_longer_than_the_context(tiny: Path) -> None:
    """A prompt within the original's limit that the context does not hold is named as that."""
    with serving("--model", tiny, "-c", "512", "-t", "1") as server:
        error = error_of(server.post({"prompt": "a b c d " * 500}, "/execute"), 400)
        assert (error["code"], error["param"]) == ("INVALID_REQUEST", "prompt")
        assert "512" in error["message"]
