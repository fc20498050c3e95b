"""Architectures that the installed llama.cpp knows and this worker does not."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from tests.support.models.architectures import write_k2_horizon
from tests.support.programs.processes import WorkerProcess
from worker.errors import ModelFileError
from worker.model.architectures import KNOWN, doubt, newer
from worker.model.config import load_config

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
