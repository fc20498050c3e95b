"""Which devices are meant by --backend and --device."""

from __future__ import annotations

import re
from typing import Any

import pytest

from worker.errors import ResidencyError, UsageError
from worker.lifecycle.devices import choose_devices
from worker.llama.library import Device
from worker.settings import Settings


def device(name: str, backend: str, kind: str = "gpu") -> Device:
    """A device with 8 GB left."""
    return Device(name, name, backend, kind, 8 << 30, 16 << 30)


CPU = device("CPU", "CPU", "cpu")
CUDA = (device("CUDA0", "CUDA"), device("CUDA1", "CUDA"))
VULKAN = (device("Vulkan0", "Vulkan"), device("Vulkan1", "Vulkan", "igpu"))
METAL = (device("MTL0", "MTL"),)
MIXED = (*VULKAN, *CUDA, CPU)


@pytest.mark.parametrize(
    ("there", "given", "names", "explicit"),
    [
        ((CPU,), {}, [], False),
        ((CPU,), {"backend": "cpu"}, [], True),
        ((CPU,), {"backend": "cpu", "device": ("0",)}, [], True),
        ((CPU,), {"device": ("CPU",)}, [], True),
        ((*CUDA, CPU), {}, ["CUDA0", "CUDA1"], False),
        ((*CUDA, CPU), {"backend": "cpu"}, [], True),
        ((*CUDA, CPU), {"device": ("none",)}, [], True),
        ((*CUDA, CPU), {"device": ("1",)}, ["CUDA1"], True),
        ((*CUDA, CPU), {"device": ("cuda0",)}, ["CUDA0"], True),
        (MIXED, {"backend": "cuda"}, ["CUDA0", "CUDA1"], True),
        (MIXED, {"backend": "cuda", "device": ("1",)}, ["CUDA1"], True),
        (MIXED, {"backend": "vulkan", "device": ("0",)}, ["Vulkan0"], True),
        (MIXED, {"device": ("cuda:1", "Vulkan0")}, ["CUDA1", "Vulkan0"], True),
        (MIXED, {"device": ("gpu:2",)}, ["CUDA0"], True),
        (MIXED, {"device": ("cpu:0",)}, [], True),
        ((*METAL, CPU), {"backend": "metal"}, ["MTL0"], True),
        ((*METAL, CPU), {"device": ("metal:0",)}, ["MTL0"], True),
    ],
)
def test_choice(
    there: tuple[Device, ...], given: dict[str, Any], names: list[str], explicit: bool
) -> None:
    """A device is meant by its name, its number or kind:number; without any all GPUs are."""
    chosen = choose_devices(Settings(**given), there)
    assert [d.name for d in chosen.chosen] == names
    assert chosen.explicit is explicit


@pytest.mark.parametrize(
    ("there", "given", "error", "part"),
    [
        ((CPU,), {"backend": "cuda"}, ResidencyError, "no cuda device"),
        ((CPU,), {"device": ("CUDA0",)}, UsageError, "'CUDA0'"),
        ((CPU,), {"device": ("gpu:0",)}, UsageError, "this build sees: CPU"),
        ((*CUDA, CPU), {"device": ("2",)}, UsageError, "'2'"),
        ((*CUDA, CPU), {"device": ("cuda:2",)}, UsageError, "'cuda:2'"),
        ((*CUDA, CPU), {"device": ("CUDA0", "CPU")}, UsageError, "the CPU beside"),
        (MIXED, {"backend": "cuda", "device": ("Vulkan0",)}, UsageError, "Vulkan0 is no cuda"),
        (MIXED, {"backend": "cpu", "device": ("CUDA0",)}, UsageError, "CUDA0 is no cpu"),
        ((*CUDA, CPU), {"backend": "cpu", "n_gpu_layers": 5}, UsageError, "--n-gpu-layers"),
        ((*CUDA, CPU), {"device": ("none",), "n_gpu_layers": 5}, UsageError, "--n-gpu-layers"),
    ],
)
def test_refusals(
    there: tuple[Device, ...], given: dict[str, Any], error: type[Exception], part: str
) -> None:
    """A missing device, or options that contradict each other, are an error that says so."""
    with pytest.raises(error, match=re.escape(part)):
        choose_devices(Settings(**given), there)


def test_what_is_reported() -> None:
    """A chosen device tells its backend, its number there, and whether its memory is the host's."""
    cuda = choose_devices(Settings(device=("CUDA1",)), MIXED)
    assert (cuda.backend, cuda.number, cuda.is_unified) == ("cuda", 1, False)
    assert [(m.name, m.available, m.unified) for m in cuda.memory] == [("CUDA1", 8 << 30, False)]
    metal = choose_devices(Settings(), (*METAL, CPU))
    assert (metal.backend, metal.number, metal.is_unified) == ("metal", 0, True)
    cpu = choose_devices(Settings(), (CPU,))
    assert (cpu.backend, cpu.number, cpu.is_unified, cpu.memory) == ("cpu", 0, True, ())
    assert choose_devices(Settings(device=("Vulkan1",)), MIXED).is_unified  # an integrated one
