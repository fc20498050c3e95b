"""The image that the Dockerfile makes: built, looked at and run."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from checks.examples.programs import free_ports
from checks.image.engine import Engine, find_engine
from tests.support import http
from tests.support.programs.processes import until
from worker.demo import MODEL_PATH

TAG = "gguf-worker:check"
NAME = "gguf-worker-check"
START_S = 180.0
MOST_BYTES = 300 * 10**6
# As in examples/compose.yaml.
LOCKED = (
    "--read-only", "--tmpfs", "/tmp", "--tmpfs", "/home/worker", "--cap-drop", "ALL",
    "--security-opt", "no-new-privileges",
)  # fmt: skip


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """One with the image."""
    found = find_engine(tmp_path_factory.mktemp("engine"))
    if isinstance(found, str):
        pytest.skip(found)
    found.build(TAG)
    return found


def inspected(engine: Engine, what: str, name: str) -> dict[str, Any]:
    """What it says about the image or a container."""
    (facts,) = json.loads(engine.say(what, "inspect", name))
    return facts


@contextlib.contextmanager
def running(engine: Engine, models: Path, *options: str) -> Generator[str]:
    """A container on the host's network with the folder as /models; yields the worker's URL."""
    (port,) = free_ports(1)
    engine.run("rm", "--force", NAME)
    words = ["--detach", "--name", NAME, "--network", "host", "--env", f"LLAMA_ARG_PORT={port}"]
    words += ["--volume", f"{models}:/models:ro", *LOCKED, TAG, *options]
    engine.say("run", *words)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        engine.run("rm", "--force", NAME)


def health(engine: Engine) -> int:
    """The exit code of the image's own check, inside of the container."""
    image = inspected(engine, "image", TAG)
    (_, *command) = (image.get("Healthcheck") or image["Config"]["Healthcheck"])["Test"]
    return engine.run("exec", NAME, *command).returncode


def test_it_is_small_and_without_root(engine: Engine) -> None:
    """At most 300 MB with its base and without a model; the user is none of the system's."""
    image = inspected(engine, "image", TAG)
    assert image["Size"] - MODEL_PATH.stat().st_size <= MOST_BYTES, image["Size"]
    assert image["Config"]["User"] == "10001"
    assert list(image["Config"]["ExposedPorts"]) == ["8080/tcp"]


def test_it_serves_a_model_of_a_volume(engine: Engine, tmp_path: Path) -> None:
    """On a root that cannot be written: ready, healthy, answers with what the volume holds, and
    SIGTERM ends it with 0."""
    tmp_path.chmod(0o755)
    shutil.copy(MODEL_PATH, tmp_path / "mine.gguf")
    with running(engine, tmp_path, "--model", "/models/mine.gguf") as url:
        until(lambda: health(engine) == 0, START_S)
        assert http.get(url + "/v1/models").json()["data"][0]["id"] == "mine"
        body = {"prompt": "Once upon", "max_tokens": 4}
        answer = http.post(url + "/v1/completions", json=body)
        assert (answer.status_code, answer.json()["usage"]["completion_tokens"]) == (200, 4)
        assert http.get(url + "/openapi.json").status_code == 200
        assert engine.say("exec", NAME, "id", "-u") == "10001"
        assert engine.run("exec", NAME, "touch", "/models/new").returncode != 0
        engine.say("stop", "--time", "30", NAME)
        assert inspected(engine, "container", NAME)["State"]["ExitCode"] == 0


def test_a_model_that_is_not_there(engine: Engine, tmp_path: Path) -> None:
    """It ends with exit code 1 and a sentence, so that whoever runs it sees why."""
    with running(engine, tmp_path, "--model", "/models/none.gguf"):
        until(lambda: inspected(engine, "container", NAME)["State"]["Status"] == "exited", START_S)
        assert inspected(engine, "container", NAME)["State"]["ExitCode"] == 1
        done = engine.run("logs", NAME)
        assert "/models/none.gguf" in done.stdout + done.stderr
