"""`worker pull` and `worker quantize` that are interrupted, told to end or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.programs.pulling import TIMEOUT_S, Machine
from worker.demo import MODEL_PATH


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_pull_goes_on(large: Machine, number: signal.Signals) -> None:
    """Bytes that had arrived are kept: the next pull asks for the rest only."""
    large.hub.troubles.stall_at = 5 << 20
    process = large.start("pull", "tiny:Q8_0")
    assert large.hub.stalled.wait(TIMEOUT_S)
    partials: list[Path] = []
    deadline = time.monotonic() + TIMEOUT_S
    while not any(path.stat().st_size >= 4 << 20 for path in partials):
        assert time.monotonic() < deadline
        time.sleep(0.02)
        partials = list(large.repo.glob("blobs/*.partial"))
    process.send_signal(number)
    _, prose = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in prose
    assert large.usable() == []
    have = partials[0].stat().st_size
    large.hub.troubles.stall_at = None
    large.hub.released.set()
    (model,) = large.pulled("tiny:Q8_0")
    assert large.hub.of("cdn", "GET")[-1].headers["range"] == f"bytes={have}-"
    assert Path(model["path"]).read_bytes() == MODEL_PATH.read_bytes()
    assert model["fetched_bytes"] == len(MODEL_PATH.read_bytes()) - have
    assert list(large.repo.glob("blobs/*.partial")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_an_interrupted_quantiser_leaves_no_file(number: signal.Signals, tmp_path: Path) -> None:
    """No half file gets the target's name, and soon nothing is left beside it."""
    target = tmp_path / "m.gguf"
    process = subprocess.Popen(
        [sys.executable, "-m", "worker", "quantize", str(MODEL_PATH), str(target), "IQ3_S",
         "-t", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + TIMEOUT_S
    while not any(path.stat().st_size for path in tmp_path.iterdir()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, number)
    _, prose = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in prose
    assert not target.exists()
    while list(tmp_path.iterdir()):
        assert time.monotonic() < deadline, list(tmp_path.iterdir())
        time.sleep(0.02)
