"""`worker plan` beside what llama.cpp takes for real weights on this CPU."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from benchmarks.memory_plan import LoadedBytes
from checks.real.conftest import Real
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
