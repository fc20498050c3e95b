"""`worker plan` beside what llama.cpp and a worker take for real weights on this CPU."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from benchmarks.memory_plan import LoadedBytes
from checks.real.conftest import Real
from tests.support.programs.processes import serving, until
from worker.settings import Settings

CASES = {
    "one slot": {"ctx_size": 2048, "parallel": 1, "mmap": True},
    "eight slots": {"ctx_size": 8192, "parallel": 8, "mmap": True},
    "not mapped": {"ctx_size": 8192, "parallel": 4, "mmap": False},
    "8-bit K": {"ctx_size": 8192, "parallel": 4, "mmap": True, "cache_type_k": "q8_0"},
}


def output_of(*command: str) -> str:
    """What a program prints; it must end well."""
    return subprocess.check_output([sys.executable, "-m", *command], text=True, timeout=120)


@pytest.mark.parametrize("case", CASES)
def test_plan(real: Real, case: str) -> None:
    """Weights, KV cells and compute buffers together are planned within 5 %."""
    settings = msgspec.structs.replace(Settings(), **CASES[case])
    options = ["-c", str(settings.ctx_size), "-np", str(settings.parallel)]
    options += ["-ctk", settings.cache_type_k, "--mmap", "on" if settings.mmap else "off"]
    plan = json.loads(output_of("worker", "plan", str(real.path), *options, "--json"))
    said = output_of(
        "benchmarks.memory_plan", "--one", str(real.path), msgspec.json.encode(settings).decode()
    )
    got = msgspec.json.decode(said.splitlines()[-1], type=LoadedBytes)
    planned = plan["weights_bytes"] + plan["kv_bytes"] + plan["compute_bytes"]
    assert planned == pytest.approx(got.weights + got.kv + got.compute, rel=0.05), got


@pytest.mark.skipif(sys.platform != "linux", reason="what is resident is known there")
@pytest.mark.parametrize(
    "words", ["", "-c 4096 -np 1", "-c 16384 -np 8 --no-mmap", "-c 8192 -ctk q8_0 -ctv q8_0"]
)
def test_resident(real: Real, words: str) -> None:
    """What a worker holds after requests, without kept states, is what the plan says of the layout
    that it starts in, within 5 %; the log says the same."""
    plan = json.loads(output_of("worker", "plan", str(real.path), *words.split(), "--json"))
    first = plan["first_bytes"]
    with serving("--model", real.path, *words.split()) as server:
        assert server.logged("ready")["planned_at_first_mb"] == round(first / 1e6)
        for count in (20, 300, 400, 500, 600):
            body = {"prompt": [*range(300, 300 + count)], "max_tokens": 32, "ignore_eos": True}
            assert server.post(body).status_code == 200

        def is_close() -> bool:  # once copies of states are given back
            health = server.health()
            held = health["memory_bytes"] - health["cache_bytes"]
            return held == pytest.approx(first, rel=0.05)

        until(is_close)
