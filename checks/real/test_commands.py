"""`worker bench` and `worker quantize` on real weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from checks.real.conftest import MODELS


def worker(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of the worker, ended."""
    return subprocess.run(
        [sys.executable, "-m", "worker", *arguments],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def test_quantize(brought: None, tmp_path: Path) -> None:
    """What is quantised already is refused, and taken with --allow-requantize; the file is good."""
    source, target = MODELS["smollm2"].path, tmp_path / "smaller.gguf"
    refused = worker("quantize", source, target, "Q3_K_M")
    assert refused.returncode != 0
    assert "--allow-requantize" in refused.stderr
    assert not target.exists()
    done = worker("quantize", source, target, "Q3_K_M", "--allow-requantize", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["file_bytes"] == target.stat().st_size < source.stat().st_size
    assert worker("check", target, "--deep").returncode == 0


def test_bench(brought: None) -> None:
    """One level is measured from start to end: loading, speed alone and over HTTP."""
    done = worker("bench", MODELS["smollm2"].path, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    (level,) = json.loads(done.stdout)["levels"]
    assert level["quant"] == "Q4_1"
    assert level["speed"]["rates"]
    assert level["load"]["warm"]["mean"] > 0
