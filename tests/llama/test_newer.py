"""Architectures that the installed llama.cpp knows and this worker does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.models.architectures import write_k2_horizon, write_qwen3
from tests.support.programs.processes import Server, WorkerProcess, serving
from worker.errors import ModelFileError
from worker.lifecycle.prepared import prepare
from worker.model.architectures import KNOWN, doubt, newer
from worker.model.config import load_config
from worker.settings import Settings

MODULE = "tests.support.programs.newer"
OLDER = {"UNKNOWN": "qwen3"}
DOUBT = "The architecture qwen3 is newer than this worker"
IS_NEWER = "k2-horizon" in newer()


def test_what_is_known_is_not_doubted() -> None:
    assert not newer() & KNOWN
    assert {doubt(name) for name in KNOWN} == {None}
    assert "k2-horizon is newer than this worker" in str(doubt("k2-horizon"))


@pytest.mark.skipif(IS_NEWER, reason="the installed llama.cpp has the architecture")
def test_what_the_library_lacks_is_refused(tmp_path: Path) -> None:
    """Before it is loaded, with the command that builds a llama.cpp that may have it."""
    with pytest.raises(ModelFileError, match="k2-horizon is not known") as caught:
        load_config(write_k2_horizon(tmp_path / "new.gguf"), purpose="serve")
    assert "make install LLAMA_CPP=" in str(caught.value.hint)


@pytest.mark.skipif(not IS_NEWER, reason="needs `make install LLAMA_CPP=` of b11549 or newer")
def test_a_newer_architecture_is_served(tmp_path: Path) -> None:
    """By what its metadata say, with a warning; its states are kept as those of any model."""
    path = write_k2_horizon(tmp_path / "new.gguf")
    worker = WorkerProcess("serve", str(path), "--port", "0", "--log-format", "json")
    try:
        url = f"{worker.wait_for('listening')['url']}/v1/completions"
        worker.wait_for("ready")
        body = json.dumps({"prompt": "a b c d", "max_tokens": 4, "temperature": 0}).encode()
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 4
        assert any("k2-horizon is newer than this worker" in line for line in worker.lines)
        assert not any("unknown form" in line for line in worker.lines)
    finally:
        worker.end()


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of an architecture that the library knows, and a worker in OLDER does not."""
    return write_qwen3(tmp_path_factory.mktemp("newer") / "m.gguf")


@pytest.fixture(scope="module")
def older(qwen3: Path) -> Generator[Server]:
    """A worker that is older than that architecture."""
    with serving(qwen3, "-c", "512", env=OLDER, module=MODULE) as running:
        yield running


def said(*words: str | Path, module: str = MODULE) -> Any:
    """What a command of the older worker, or of this one, prints."""
    command = [sys.executable, "-m", module, *map(str, words)]
    return subprocess.check_output(command, env=os.environ | OLDER, text=True, timeout=120)


def test_its_plan_is_an_estimate(qwen3: Path) -> None:
    """`worker plan` says so, as a table and as JSON; one of a known architecture does not."""
    assert DOUBT in said("plan", qwen3)
    assert "memory plan is an estimate" in said("plan", qwen3)
    assert DOUBT in json.loads(said("plan", qwen3, "--json"))["newer"]
    assert json.loads(said("plan", qwen3, "--json", module="worker"))["newer"] is None


def test_check_says_what_is_known(qwen3: Path) -> None:
    """What is checked by whom, beside the architecture's name."""
    verdict = json.loads(said("check", qwen3, "--json"))
    assert verdict["ok"]
    assert verdict["architecture"] == "qwen3"
    assert "metadata, vocabulary and weights are checked" in verdict["newer"]
    assert "only llama.cpp knows which tensors it needs" in verdict["newer"]


def test_info_says_what_is_not_known(older: Server, server: Server) -> None:
    """/info has the sentence of the log; of a known architecture it is null."""
    told = http.get(older.url + "/info").json()["newer"]
    assert told.startswith(DOUBT)
    assert any(told in line for line in older.lines)
    assert http.get(server.url + "/info").json()["newer"] is None


def test_its_memory_is_asked_of_llama_cpp(qwen3: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if an estimate would do for an architecture that is known."""
    assert not prepare(qwen3, Settings(ctx_size=512)).plan.is_asked

    def unsure(_: str) -> str:
        return DOUBT

    monkeypatch.setattr("worker.memory.plan.doubt", unsure)
    plan = prepare(qwen3, Settings(ctx_size=512)).plan
    assert (plan.is_asked, plan.newer) == (True, DOUBT)


def test_chats_follow_its_template(older: Server, qwen3: Path) -> None:
    """The file's template alone decides what a chat is written as: the same for both workers."""
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    told = older.post(body, "/apply-template").json()
    with serving(qwen3, "-c", "512") as known:
        assert known.post(body, "/apply-template").json() == told
