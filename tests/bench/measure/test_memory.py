"""What a process holds is what the kernel says; what a token reads is what the file has."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.models import write_model
from benchmarks.shapes import SHAPES
from tests.bench.run.jobs import job_of, section_of
from tests.support.programs.processes import Server
from worker.bench.measure.machine import process_memory, read_per_token
from worker.bench.measure.server import arguments_of
from worker.bench.sizes import Sizes
from worker.bench.stages import SERVE, SPEED
from worker.demo import MODEL_PATH
from worker.gguf.splits import open_header
from worker.lifecycle.buffers import asking
from worker.lifecycle.devices import Devices
from worker.lifecycle.prepared import memory_with
from worker.lifecycle.server_process import clean_environment
from worker.llama.packing import packed_encodings
from worker.memory.plan import plan_memory
from worker.memory.weights import weights_bytes
from worker.model.config import load_config
from worker.settings import Settings

pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs /proc")
SIZES = Sizes(window=64, windows=1, questions=1, greedy_prompts=1, greedy_tokens=4, prompt=64,
              depth=64, decode=8, repetitions=1, requests=1, loads=1)  # fmt: skip


def kernel(pid: int, file: str, field: str) -> int:
    """A field of a process's file in /proc, in bytes."""
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {field}")


def test_a_server_s_memory_is_the_kernel_s(server: Server) -> None:
    """VmHWM, VmRSS and Pss of another process."""
    pid = server.process.pid
    before = kernel(pid, "status", "VmHWM")
    found = process_memory(pid)
    assert found is not None
    assert before <= found.peak_rss <= kernel(pid, "status", "VmHWM")
    assert found.rss == pytest.approx(kernel(pid, "status", "VmRSS"), rel=0.05)
    assert found.pss == pytest.approx(kernel(pid, "smaps_rollup", "Pss"), rel=0.05)
    assert found.pss <= found.rss <= found.peak_rss


def test_our_own_memory_is_what_getrusage_counts() -> None:
    """The high-water mark is the same by both ways of asking; a process that is gone has none."""
    found = process_memory()
    assert found is not None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert found.peak_rss == pytest.approx(peak, rel=0.02)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert process_memory(ended.pid) is None


def test_a_level_s_memory_is_of_its_own_process() -> None:
    """A child that holds the demo model: more than the model, less than us with all our tests;
    buffers as llama.cpp reports them, and a plan that is near to what was used."""
    settings = Settings(parallel=2, ctx_size=512, threads=1, threads_batch=1)
    found = section_of(SPEED, job_of(SPEED, MODEL_PATH, settings, SIZES))
    assert found.memory is not None
    config = load_config(MODEL_PATH)
    assert config.size_bytes < found.memory.peak_rss < found.needs.planned_bytes * 1.3
    assert found.needs.context == 512
    assert sum(found.buffers.kv.values()) == pytest.approx(512 * found.needs.kv_bytes_per_token)
    weights = weights_bytes(config, packed_encodings())
    assert sum(found.buffers.weights.values()) == pytest.approx(weights, rel=0.01)
    assert found.buffers.device_bytes == 0
    assert found.needs.max_context == config.context  # a small model: all of it fits
    assert found.threads == found.threads_batch == 1


def test_a_server_is_measured_over_http() -> None:
    """Requests at 1 and at N streams with as many tokens as asked for, and the server's memory."""
    settings = Settings(parallel=2, ctx_size=512, threads=1, threads_batch=1)
    found = section_of(SERVE, job_of(SERVE, MODEL_PATH, settings, SIZES))
    assert [request.streams for request in found.requests] == [1, 2]
    for request in found.requests:
        assert request.ttft is not None
        assert request.itl is not None
        assert request.ttft.count == request.streams
        assert 0 < request.itl.count <= request.streams * (SIZES.decode - 1)
        assert request.per_s.mean > 0
        assert 0 < request.ttft.p50 < 60
    assert found.memory is not None
    assert found.memory.peak_rss > load_config(MODEL_PATH).size_bytes


def test_a_token_reads_all_but_what_is_looked_up(tmp_path: Path) -> None:
    """A tied embedding is read as the output; an untied one is not read; of experts those used."""

    def read(path: Path) -> tuple[int, dict[str, int]]:
        tensors = [(tensor.name, tensor.nbytes) for tensor in open_header(path).tensors]
        return read_per_token(load_config(path), tensors), dict(tensors)

    tied, tensors = read(MODEL_PATH)
    assert tied == sum(tensors.values())
    shape = SHAPES["tinyllama-1.1b"]
    untied, tensors = read(write_model(tmp_path / "untied.gguf", shape, "Q4_0", hollow=True))
    assert untied == sum(tensors.values()) - tensors["token_embd.weight"]
    shape = SHAPES["moe-small"]
    sparse, tensors = read(write_model(tmp_path / "moe.gguf", shape, "Q4_0", hollow=True))
    experts = sum(nbytes for name, nbytes in tensors.items() if "_exps" in name)
    dense = sum(tensors.values()) - experts - tensors["token_embd.weight"]
    assert sparse == dense + experts * shape.experts_used // shape.experts


def test_a_server_is_told_what_bears_on_speed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings become options, defaults none; addresses, keys and variables stay out."""
    settings = Settings(
        ctx_size=1024, parallel=3, mmap=True, device=("A", "B"), port=9, api_key="secret"
    )
    assert arguments_of(Settings()) == []
    assert arguments_of(settings) == [
        "--ctx-size", "1024", "--device", "A,B", "--mmap", "on", "--parallel", "3",
    ]  # fmt: skip
    monkeypatch.setenv("LLAMA_ARG_PORT", "1")
    monkeypatch.setenv("LLAMA_API_KEY", "secret")
    monkeypatch.setenv("HOME_OF_TEST", "kept")
    cleaned = clean_environment()
    assert "LLAMA_ARG_PORT" not in cleaned
    assert "LLAMA_API_KEY" not in cleaned
    assert cleaned["HOME_OF_TEST"] == "kept"


def test_the_plan_is_the_worker_s() -> None:
    """What is reported as needed is what `worker plan` says for the same settings."""
    settings = Settings(parallel=2, ctx_size=512, threads=1, threads_batch=1)
    found = section_of(SPEED, job_of(SPEED, MODEL_PATH, settings, SIZES))
    config = load_config(MODEL_PATH)
    with asking(config) as ask:
        plan = plan_memory(config, settings, memory_with(Devices()), ask=ask)
    assert found.needs.planned_bytes == plan.total_bytes
    assert found.needs.kv_bytes_per_token == plan.kv_bytes_per_token
