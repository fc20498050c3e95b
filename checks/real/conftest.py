"""The real models with the reference's values, and one running worker for each."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from checks.real.comparing import Distance
from checks.real.pieces import pieces_of
from checks.real.values import ReferenceValues, read_values
from checks.real.weights import GEMMA3, SMOLLM2, UnreachableError, bring
from tests.support import http
from tests.support.programs.processes import Server, serving
from worker import log
from worker.errors import WorkerError

log.configure("console", "error")

# Where the run was started in the background they are ignored, and so they would be in workers.
signal.signal(signal.SIGINT, signal.default_int_handler)

PATIENCE_S = 600.0  # a busy machine may take minutes for 4,000 tokens
MODELS = {"smollm2": SMOLLM2, "gemma3": GEMMA3}


class Real:
    """A model: its file, what the reference says of it, and what its tokens spell."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path: Path = MODELS[name].path
        self.values: ReferenceValues = read_values(name)
        self.pieces: list[str] = pieces_of(self.path)
        assert self.values.sha256 == MODELS[name].sha256, "the reference is of another file"

    def serving(self, *options: str | Path) -> AbstractContextManager[Server]:
        """A ready worker over it."""
        return serving("--model", self.path, *options)

    def comparison(self) -> Distance:
        """An empty one."""
        return Distance(self.pieces)


@pytest.fixture(scope="session")
def brought() -> None:
    """The weights are there. Without an index these tests are skipped, but not in CI."""
    try:
        bring()
    except UnreachableError as error:
        if os.environ.get("CI", "").lower() not in ("true", "1"):
            pytest.skip(str(error))
        pytest.exit(str(error), returncode=1)
    except WorkerError as error:
        pytest.exit(str(error), returncode=1)


@pytest.fixture(scope="session", params=MODELS)
def real(request: pytest.FixtureRequest, brought: None) -> Real:
    """Each of the models that generate."""
    return Real(request.param)


@pytest.fixture(scope="session")
def server(real: Real) -> Generator[Server]:
    """A worker with eight slots for all tests that leave it as they found it."""
    with real.serving("-c", "8192", "-np", "8") as running:
        yield running


def complete(server: Server, prompt: list[int], **fields: Any) -> dict[str, Any]:
    """POST /v1/completions, greedily and with the likeliest tokens: the whole answer."""
    body = {"prompt": prompt, "temperature": 0, "logprobs": 10, **fields}
    answer = http.post(server.url + "/v1/completions", json=body, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return answer.json()
