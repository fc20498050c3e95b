"""Both routes on a running worker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.decisions.asked import PNG
from tests.api.decisions.test_systemone import FORM, form
from tests.support import http
from tests.support.cases import for_each
from tests.support.programs.processes import Server

NOTE = "Once again the lift is stuck, since noon."
TRUE = "Something is out of order."
WHO = {"lifts": "doors, cabins", "nobody": None}
LEVELS = ["can wait", "today", "now"]
OPENAI: dict[str, Any] = {
    "model": "m",
    "input": NOTE,
    "questions": [
        {"type": "predicate", "name": "broken", "instructions": TRUE},
        {
            "type": "choice",
            "instructions": "Who repairs it?",
            "choices": [
                {"value": "lifts", "description": WHO["lifts"]}, {"value": "nobody"},
            ],
        },
        {
            "type": "score",
            "instructions": "How urgent?",
            "levels": [{"label": label} for label in LEVELS],
        },
    ],
}  # fmt: skip
SYSTEM_ONE: dict[str, Any] = {
    "model": "m",
    "state": NOTE,
    "questions": {
        "broken": {"type": "noul", "instructions": TRUE},
        "who": {"type": "choice", "instructions": "Who repairs it?", "criteria": WHO},
        "urgent": {"type": "score", "instructions": "How urgent?", "criteria": LEVELS},
    },
}
NEAR = pytest.approx


def answers(server: Server, body: Any, path: str) -> Any:
    answer = server.post(body, path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-typesafe-request-id"] == answer.headers["x-request-id"]
    return answer.json()


def test_one_number(server: Server) -> None:
    """Both APIs give the same probabilities and count the same tokens."""
    ours, theirs = (
        answers(server, OPENAI, "/v1/decisions"),
        answers(server, SYSTEM_ONE, "/v1/systemone"),
    )
    broken, who, urgent = ours["answers"]
    noul, choice, score = theirs["answers"].values()
    assert 0 < broken["probability"] < 1
    assert broken["probability"] == NEAR(noul["noul"], abs=1e-6)
    assert [each["probability"] for each in who["probabilities"]] == NEAR(
        list(choice["probabilities"].values()), abs=1e-6
    )
    assert urgent["score"] == NEAR(score["score"], abs=1e-6)
    assert [each["label"] for each in urgent["probabilities"]] == list(score["legend"].values())
    for found in (choice, score):
        assert abs(sum(found["probabilities"].values()) - 1) < 1e-12
    assert ours["usage"]["input_tokens"] == theirs["usage"]["input_tokens"] > 0


@for_each("path", ["/decisions", "/v1/decisions", "/systemone", "/v1/systemone"])
def test_a_state_wherever_it_comes(server: Server, path: str) -> None:
    """A body with a state is answered in System One's shape, right or wrong."""
    assert list(answers(server, SYSTEM_ONE, path)["answers"]) == ["broken", "who", "urgent"]
    refused = server.post({**SYSTEM_ONE, "questions": {"a": {"type": "box"}}}, path)
    assert refused.status_code == 422
    assert refused.json()["detail"][0]["loc"] == ["body", "questions", "a", "type"]


def test_a_wrong_question_has_its_place(server: Server) -> None:
    """Each API tells it in its own form."""
    body = {**OPENAI, "questions": [{"type": "predicate", "instructions": ""}]}
    refused = server.post(body, "/v1/decisions")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "questions[0].instructions"
    refused = server.post({**SYSTEM_ONE, "questions": {"a.b": {"type": "noul"}}}, "/v1/systemone")
    assert refused.status_code == 422
    assert refused.json()["detail"][0]["loc"] == ["body", "questions", "a.b"]


def test_usage_tells_of_the_request(server: Server) -> None:
    """It is the same where the state comes from the cache."""
    counts = [answers(server, OPENAI, "/v1/decisions")["usage"] for _ in range(2)]
    assert counts[0] == counts[1]


def test_too_long(server: Server) -> None:
    """Both counts are told, and nothing is cut."""
    long = "word " * 20_000
    refused = server.post({**OPENAI, "input": long}, "/v1/decisions")
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (400, "context_length_exceeded")
    assert error["n_prompt_tokens"] > error["n_ctx"] > 0
    assert error["param"] == "input"
    refused = server.post({**SYSTEM_ONE, "state": long}, "/v1/systemone")
    (detail,) = refused.json()["detail"]
    assert refused.status_code == 422
    assert detail["loc"] == ["body", "state"]
    assert detail["type"] == "context_length_exceeded"
    assert f"{error['n_ctx']} tokens" in detail["msg"]


def test_a_form(server: Server) -> None:
    """It is read; a model that reads text only refuses its pictures."""
    body = {**SYSTEM_ONE, "state": "At <p>", "assets": {"<p>": {"part": "asset-0"}}}
    data = form(request=json.dumps(body).encode(), asset_0=PNG.encode())
    answer = http.post(server.url + "/v1/systemone", content=data, headers={"content-type": FORM})
    assert answer.status_code == 422
    assert "reads text only" in answer.json()["detail"][0]["msg"]
    data = form(request=json.dumps(SYSTEM_ONE).encode())
    answer = http.post(server.url + "/v1/systemone", content=data, headers={"content-type": FORM})
    assert answer.status_code == 200, answer.text


def test_one_record(server: Server) -> None:
    """A decision is one request, whatever it asks."""
    name = server.post(OPENAI, "/v1/decisions").headers["x-request-id"]
    recent = http.get(server.url + "/v1/requests").json()["recent"]
    (record,) = [each for each in recent if each["id"] == name]
    assert record["status"] == 200


def test_models_for_typesafe(server: Server) -> None:
    """Each has a name, a description and a date, all texts."""
    for listed in http.get(server.url + "/v1/models").json()["models"]:
        assert listed["name"]
        assert listed["description"]
        assert listed["release_date"].count("-") == 2
