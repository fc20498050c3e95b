"""The stage that asks a level: a server of ours, and all questions over POST /v1/systemone."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from worker.bench.decisions.answers import DecisionAnswer, DecisionAnswers
from worker.bench.decisions.questions import AskedState, questions_at
from worker.bench.measure.server import model_server
from worker.bench.stages import StageJob
from worker.errors import BackendError
from worker.lifecycle.server_process import ServerAddress
from worker.model.calibration import ScoringMode

_LIMIT_S = 600.0
_MOST = 400  # questions of one request


class _Diagnostics(msgspec.Struct):
    label_mass: float
    prompt_version: str
    orders: int
    flips: int
    mode: ScoringMode


class _Answer(msgspec.Struct):
    diagnostics: _Diagnostics
    noul: float | None = None
    probabilities: dict[str, float] | None = None


class _Usage(msgspec.Struct):
    input_tokens: int


class _Reply(msgspec.Struct):
    answers: dict[str, _Answer]
    usage: _Usage


def ask_level(job: StageJob, report: Callable[[float], None]) -> DecisionAnswers:
    """All answers of a level. Raises BackendError where the server refuses a request."""
    questions = questions_at(job.place, job.plan.questions)
    answers: list[DecisionAnswer] = []
    version, tokens = "", 0
    with model_server(Path(job.path), job.settings) as server:
        begun = time.monotonic()
        for number, state in enumerate(questions.states):
            for part in _parts(state):
                reply = _ask(server, part)
                tokens += reply.usage.input_tokens
                for key, asked in part.asked.items():
                    found = reply.answers[key]
                    told = found.diagnostics
                    version = told.prompt_version
                    answers.append(
                        DecisionAnswer(
                            kind=asked.kind, probabilities=_row(found), right=asked.right,
                            state=number, label_mass=told.label_mass, orders=told.orders,
                            flips=told.flips, mode=told.mode,
                        )
                    )  # fmt: skip
            report((number + 1) / len(questions.states))
        seconds = time.monotonic() - begun
    return DecisionAnswers(
        answers=tuple(answers), prompt_version=version, tokens=tokens, seconds=seconds
    )


def _parts(state: AskedState) -> list[AskedState]:
    """The state with as many of its questions as one request may have."""
    keys = list(state.questions)
    some = [keys[first : first + _MOST] for first in range(0, len(keys), _MOST)]
    return [
        AskedState(
            state.state,
            {key: state.questions[key] for key in part},
            {key: state.asked[key] for key in part},
        )
        for part in some
    ]


def _row(answer: _Answer) -> tuple[float, ...]:
    if answer.noul is not None:
        return answer.noul, 1.0 - answer.noul
    return tuple((answer.probabilities or {}).values())


def _ask(server: ServerAddress, state: AskedState) -> _Reply:
    body: dict[str, Any] = {"model": "", "state": state.state, "questions": state.questions}
    connection = http.client.HTTPConnection(server.host, server.port, timeout=_LIMIT_S)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/systemone", msgspec.json.encode(body), headers)
        response = connection.getresponse()
        data = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise BackendError(f"The server did not answer: {error}.") from None
    finally:
        connection.close()
    if response.status != 200:
        raise BackendError(f"The server refused a question: {data[:300].decode(errors='replace')}")
    return msgspec.json.decode(data, type=_Reply)
