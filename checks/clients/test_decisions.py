"""Clients of both decision APIs ask a real worker: what each sends for each type of question, and
what it reads of the answer. `make check SUITE=clients`."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest

from checks.clients.installed import PROGRAMS, interpreter, needs_clients, run
from checks.clients.recorder import Recorder, recording
from tests.support.models.projectors import write_llava
from tests.support.programs.processes import Server, serving
from worker.demo import MODEL_PATH

OPENAI, SYSTEM_ONE = "/v1/decisions", "/v1/systemone"
NOTE = "Once again the lift is stuck, since noon."
BROKEN = "Something is out of order."
PREDICATE = {"type": "predicate", "name": "broken", "instructions": BROKEN}
CHOICES = [{"value": "lifts", "description": "doors, cabins"}, {"value": False}]
LEVELS = [{"label": "can wait"}, {"label": "today"}, {"label": "now"}]
CRITERIA = ["can wait", "today", "now"]
LIFTS = {"lifts": "doors, cabins", "nobody": None}
# As openai 3.57.0 sends them.
ASKED_ALL = {
    "model": "m",
    "input": NOTE,
    "questions": [
        PREDICATE,
        {"type": "choice", "instructions": "Who repairs it?", "choices": CHOICES},
        {
            "type": "score",
            "instructions": [{"type": "input_text", "text": "How urgent?"}],
            "levels": LEVELS,
        },
    ],
    "prompt_cache_key": "k",
    "safety_identifier": "s",
}
ASKED_ITEMS = {
    "model": "m",
    "input": [
        {"role": "user", "content": [{"type": "input_json", "data": {"floor": 3}}]},
        {"type": "function_call", "call_id": "c", "name": "ring", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "No one came."},
    ],
    "questions": [PREDICATE],
}
# As typesafe-sdk 0.7.5 sends them.
NAMED = {
    "broken": {
        "type": "noul", "instructions": BROKEN, "criteria": {"true": "It stands still."},
    },
    "who": {"type": "choice", "criteria": LIFTS},
    "urgent": {"type": "score", "instructions": "How urgent?", "criteria": CRITERIA},
}  # fmt: skip
ASKED_NAMED = {
    "state": {"notes": [f"{NOTE} ({number})" for number in range(30)]},
    "model": "m",
    "questions": NAMED,
}
# As litellm 1.110.2 sends them.
LITELLM = {
    OPENAI: {
        "model": "m",
        "input": NOTE,
        "questions": [
            PREDICATE,
            {
                "type": "choice",
                "name": "who",
                "instructions": "Who repairs it?",
                "choices": CHOICES,
            },
            {"type": "score", "name": "urgent", "instructions": "How urgent?", "levels": LEVELS},
        ],
    },
    SYSTEM_ONE: {
        "model": "m",
        "state": NOTE,
        "questions": {
            "broken": {"type": "noul", "instructions": BROKEN},
            "who": {
                "type": "choice",
                "instructions": "Who repairs it?",
                "criteria": {"lifts": "doors, cabins", "false": None},
            },
            "urgent": {"type": "score", "instructions": "How urgent?", "criteria": CRITERIA},
        },
    },
}

pytestmark = needs_clients


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    """The demo model."""
    with serving("--model", MODEL_PATH, "-t", "1", "--ctx-size", "4096") as running:
        yield running


@pytest.fixture(scope="module")
def recorder(server: Server) -> Generator[Recorder]:
    with recording(server.url) as made:
        yield made


@pytest.fixture(scope="module")
def found(recorder: Recorder) -> dict[str, Any]:
    """What openai, typesafe-sdk and jevper made of the answers."""
    said = run(interpreter("decisions"), PROGRAMS / "decisions.py", recorder.url)
    return json.loads(said.splitlines()[-1])


def answered(server: Server, path: str, body: Any) -> Any:
    answer = server.post(body, path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def same(read: Any, sent: Any) -> None:
    """A client read all that was sent, and adds nothing but null. Numbers are the same up to what
    the cache changes."""
    if isinstance(sent, dict):
        fields = cast("dict[str, Any]", sent)
        assert {name for name, value in read.items() if value is not None} <= fields.keys()
        for name, value in fields.items():
            if name != "diagnostics":
                same(read[name], value)
    elif isinstance(sent, list):
        for one, other in zip(read, cast("list[Any]", sent), strict=True):
            same(one, other)
    else:
        assert type(read) is type(sent)
        assert read == (pytest.approx(sent, abs=1e-4) if isinstance(sent, float) else sent)


def test_openai(server: Server, recorder: Recorder, found: dict[str, Any]) -> None:
    """Each type, items, and a refusal with its place."""
    assert recorder.to(OPENAI)[:2] == [ASKED_ALL, ASKED_ITEMS]
    same(found["openai_all"], answered(server, OPENAI, ASKED_ALL))
    same(found["openai_items"], answered(server, OPENAI, ASKED_ITEMS))
    assert found["openai_refused"] == ["questions", "invalid_request_error"]


def test_typesafe(server: Server, recorder: Recorder, found: dict[str, Any]) -> None:
    """Each type, packed with zstd; a refusal with its place; the list of models."""
    first = next(each for each in recorder.sent if each.path == SYSTEM_ONE)
    assert (first.coding, first.body) == ("zstd", ASKED_NAMED)
    same(found["typesafe_all"], answered(server, SYSTEM_ONE, ASKED_NAMED))
    place = ["body", "questions", "where.is", "type"]
    assert found["typesafe_refused"] == [422, place]
    assert found["typesafe_models"] == ["demo-5m-f16", "llama, F16", 2]
    assert "reads text only" in found["typesafe_picture"]


def test_typesafe_pictures(tmp_path: Path) -> None:
    """The raw bytes of a picture in a form, to a model that sees."""
    model = write_llava(tmp_path)[0]
    with serving("--model", model, "--ctx-size", "4096") as seeing, recording(seeing.url) as made:
        said = run(interpreter("decisions"), PROGRAMS / "decisions.py", made.url)
        found = json.loads(said.splitlines()[-1])
        assert found["typesafe_picture"]["answers"]["broken"]["noul"] >= 0
        (form,) = [each.body for each in made.sent if isinstance(each.body, bytes)]
        assert b'name="asset-0"' in form


def test_jevper(server: Server, recorder: Recorder, found: dict[str, Any]) -> None:
    """Each type, over the openai package to /v1/systemone."""
    asked = {"state": NOTE, "model": "m", "questions": NAMED}
    assert asked in recorder.to(SYSTEM_ONE)
    same(found["jevper_all"], answered(server, SYSTEM_ONE, asked)["answers"])


def test_litellm(server: Server) -> None:
    """The same questions by both routes give the same numbers."""
    with recording(server.url) as made:
        said = run(
            interpreter("litellm"), PROGRAMS / "litellm_decisions.py", made.url,
            LITELLM_LOCAL_MODEL_COST_MAP="True",
        )  # fmt: skip
        found = json.loads(said.splitlines()[-1])
        assert made.to(OPENAI) == [LITELLM[OPENAI]]
        assert made.to(SYSTEM_ONE)[0] == LITELLM[SYSTEM_ONE]
    same(found["openai"], answered(server, OPENAI, LITELLM[OPENAI]))
    same(found["hosted_vllm"], found["openai"])
    named = {"model": "m", "state": {"note": NOTE}, "questions": {
        "broken": {"type": "noul", "instructions": BROKEN},
        "who": {"type": "choice", "criteria": LIFTS},
        "urgent": {"type": "score", "criteria": CRITERIA},
    }}  # fmt: skip
    same(found["system_one"], answered(server, SYSTEM_ONE, named))
