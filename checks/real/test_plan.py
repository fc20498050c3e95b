"""`worker plan` beside what llama.cpp and a worker take for real weights on this CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.memory_plan import LoadedBytes
from checks.real.bert import mini_lm
from checks.real.conftest import Real
from tests.support.programs.processes import serving, until
from worker.settings import Settings

CASES = {
    "one slot": {"ctx_size": 2048, "parallel": 1, "mmap": True},
    "eight slots": {"ctx_size": 8192, "parallel": 8, "mmap": True},
    "not mapped": {"ctx_size": 8192, "parallel": 4, "mmap": False},
    "standard attention": {"ctx_size": 8192, "parallel": 4, "mmap": True, "flash_attn": "off"},
    "8-bit K": {"ctx_size": 8192, "parallel": 4, "mmap": True, "cache_type_k": "q8_0"},
}
# llama.cpp prints MiB with two decimals, for each of at most four buffers.
PRINTED = 4 * 10_486
ENGLISH = Path("README.md").read_text().split()


def output_of(*command: str) -> str:
    """What a program prints; it must end well."""
    return subprocess.check_output([sys.executable, "-m", *command], text=True, timeout=120)


@pytest.mark.parametrize("case", CASES)
def test_plan(real: Real, case: str) -> None:
    """KV cells and compute buffers are planned as llama.cpp allocates them: it was asked."""
    settings = msgspec.structs.replace(Settings(), **CASES[case])
    options = ["-c", str(settings.ctx_size), "-np", str(settings.parallel)]
    options += [
        "-fa",
        settings.flash_attn,
        "-ctk",
        settings.cache_type_k,
        "--mmap",
        "on" if settings.mmap else "off",
    ]
    plan = json.loads(output_of("worker", "plan", str(real.path), *options, "--json"))
    said = output_of(
        "benchmarks.memory_plan", "--one", str(real.path), msgspec.json.encode(settings).decode()
    )
    got = msgspec.json.decode(said.splitlines()[-1], type=LoadedBytes)
    assert plan["is_asked"]
    assert plan["kv_bytes"] == pytest.approx(got.kv, abs=PRINTED)
    assert plan["compute_bytes"] == pytest.approx(got.compute, abs=PRINTED)


@pytest.mark.skipif(sys.platform != "linux", reason="what is resident is known there")
@pytest.mark.parametrize(
    "words",
    [
        "",
        "-c 2048 -np 1",
        "-c 4096 -np 1",
        "-c 16384 -np 8 --no-mmap",
        "-c 8192 -ctk q8_0 -ctv q8_0",
    ],
)
def test_resident(real: Real, words: str) -> None:
    """What a worker holds after requests, without kept states, is what the plan says of the layout
    that it starts in, within 5 %. So is what the log says, which is estimated. Guesses add rows of
    logits, as many as pay on this machine at this moment: here there are none."""
    plan = json.loads(output_of("worker", "plan", str(real.path), *words.split(), "--json"))
    first = plan["first_bytes"]
    with serving("--model", real.path, *words.split(), "--draft", "none") as server:
        assert server.logged("ready")["planned_at_first_mb"] == pytest.approx(first / 1e6, rel=0.03)
        for count in (20, 300, 400, 500, 600):
            body = {"prompt": [*range(300, 300 + count)], "max_tokens": 32, "ignore_eos": True}
            assert server.post(body).status_code == 200

        def is_close() -> bool:  # once copies of states are given back
            health = server.health()
            held = health["memory_bytes"] - health["cache_bytes"]
            return held == pytest.approx(first, rel=0.05)

        until(is_close)


@pytest.fixture(scope="module")
def minilm(brought: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """all-MiniLM-L6-v2, which makes vectors."""
    return mini_lm().write(tmp_path_factory.mktemp("encoder") / "all-MiniLM-F16.gguf")


@pytest.mark.skipif(sys.platform != "linux", reason="what is resident is known there")
@pytest.mark.parametrize("words", ["", "--no-mmap", "-fa on"])
def test_resident_encoder(minilm: Path, words: str) -> None:
    """What an encoder holds after texts of up to 128 tokens is planned within 5 %."""
    plan = json.loads(output_of("worker", "plan", str(minilm), *words.split(), "--json"))
    with serving("--model", minilm, *words.split()) as server:
        for start in range(0, 600, 60):
            texts = [" ".join(ENGLISH[start + at : start + at + 40])[:200] for at in range(20)]
            assert server.post({"input": texts}, "/v1/embeddings").status_code == 200

        def is_close() -> bool:
            return server.health()["memory_bytes"] == pytest.approx(plan["first_bytes"], rel=0.05)

        until(is_close)
