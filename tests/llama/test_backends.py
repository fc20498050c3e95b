"""Devices: what the build has, where layers land, and that a GPU asked for is not the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.here import MARKS
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.errors import ResidencyError, UsageError
from worker.lifecycle.prepared import check_build
from worker.llama import library
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions
from worker.settings import Settings

CONTEXT = ContextOptions(num_cells=512, num_slots=2, threads=1, threads_batch=1)
offloads = any(device.offloads for device in library.devices())


def greedy(backend: LlamaBackend) -> list[int | None]:
    engine = Engine(backend, lambda: 0.0)
    engine.add(
        Request(
            id="a",
            prompt=Prompt((1, 5, 6, 7)),
            params=GenerationParams(max_tokens=12, sampling=SamplingParams(temperature=0)),
        )
    )
    tokens: list[int | None] = []
    while not engine.is_idle:
        tokens += [delta.token for delta in engine.step()]
    return tokens


def test_the_build_says_what_it_has() -> None:
    """Backends, devices and the bindings' version are read from the library itself."""
    build = library.build()
    assert "CPU" in build.backends
    assert build.bindings == "0.3.36"
    assert [device.name for device in library.devices() if device.kind == "cpu"] == ["CPU"]


def test_residency_on_the_cpu(tiny: Path) -> None:
    """Without offloading every layer, the output layer and the KV cache are on the CPU."""
    with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=0), CONTEXT) as backend:
        assert backend.weights.residency.layers == ("CPU",) * 3
        assert backend.context.residency.layers == ((0, "CPU"), (1, "CPU"))
        assert sum(size for _, size in backend.weights.residency.buffers) > 400_000


@pytest.mark.skipif(offloads, reason="this machine has a GPU to offload to")
@pytest.mark.parametrize("layers", [1, -1, 10_000])
def test_no_silent_fall_back(tiny: Path, layers: int) -> None:
    """Layers that were to be offloaded on a build without a GPU are an error, not a slow worker."""
    with pytest.raises(ResidencyError, match="no GPU"):
        LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=layers), CONTEXT)


def test_a_plain_step_on_the_cpu_is_less_than_a_tile(tiny: Path) -> None:
    """However many streams there are, their rows stay below the 64 that make a tile."""
    options = ContextOptions(num_cells=2048, num_slots=70)
    sampling = SamplingParams(temperature=0, ignore_eos=True)
    with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=0), options) as backend:
        engine = Engine(backend, lambda: 0.0)
        for i in range(64):
            engine.add(
                Request(
                    id=str(i),
                    prompt=Prompt((5 + i, 9)),
                    params=GenerationParams(max_tokens=3, sampling=sampling),
                )
            )
        assert len(engine.step()) == 64
        assert [len(engine.step()) for _ in range(4)] == [32] * 4
        assert engine.is_idle


BACKENDS = [mark for mark in MARKS if mark != "mtmd"]


def test_unknown_device(tiny: Path) -> None:
    """A device that does not exist is named, with those that do."""
    with pytest.raises(UsageError, match=r"Nowhere9.*\n?.*CPU"):
        LlamaBackend.open(tiny, LoadOptions(devices=("Nowhere9",)), CONTEXT)


@pytest.mark.parametrize("mark", [pytest.param(m, marks=getattr(pytest.mark, m)) for m in BACKENDS])
def test_asserted_backend_is_there(mark: str) -> None:
    """--backend NAME passes on a build that has it."""
    check_build(Settings(backend=mark))


@pytest.mark.parametrize(
    "mark", [pytest.param(m, marks=getattr(pytest.mark, m)) for m in BACKENDS if m != "rpc"]
)
def test_offloaded_layers_land_and_agree(tiny: Path, mark: str) -> None:
    """All layers and their KV cache land on the GPU and give the CPU's greedy tokens."""
    with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=0), CONTEXT) as backend:
        expected = greedy(backend)
    with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=-1), CONTEXT) as backend:
        assert all(device != "CPU" for device in backend.weights.residency.layers)
        assert all(device != "CPU" for _, device in backend.context.residency.layers)
        assert greedy(backend) == expected
