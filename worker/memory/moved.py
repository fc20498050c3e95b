"""Tensors that lie elsewhere than their layer: experts on the CPU, what --override-tensor names.

llama.cpp reads the same expressions; of several that match the first one counts.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from worker.gguf.splits import open_header
from worker.model.config import ModelConfig
from worker.settings import Settings

CPU = "CPU"
_EXPERTS = "ffn_(up|down|gate|gate_up)_(ch|)exps"
_BLOCK = re.compile(r"blk\.(\d+)\.")


class Moved(msgspec.Struct, frozen=True):
    """`nbytes` of a layer, in the order of the file, that lie on another device. The output layer's
    number follows the last block's; None: of what is on the CPU anyway."""

    layer: int | None
    nbytes: int
    device: str


def placements(settings: Settings, cpu_experts: int) -> tuple[tuple[str, str], ...]:
    """Expression and device of each wish; `cpu_experts`: layers whose experts stay on the CPU."""
    if not cpu_experts:
        return settings.override_tensor
    layers = "|".join(map(str, range(cpu_experts)))
    return (*settings.override_tensor, (rf"blk\.({layers})\.{_EXPERTS}", CPU))


def device_for(name: str, wishes: tuple[tuple[str, str], ...]) -> str | None:
    """The device that a tensor shall lie on; None: that of its layer."""
    return next((device for pattern, device in wishes if re.search(pattern, name)), None)


def named_tensors(config: ModelConfig, settings: Settings) -> tuple[Moved, ...]:
    """What the settings name."""
    wishes, found = settings.override_tensor, list[Moved]()
    for tensor in open_header(Path(config.path)).tensors if wishes else ():
        if (device := device_for(tensor.name, wishes)) is not None:
            block = _BLOCK.match(tensor.name)
            output = config.layers if tensor.name.startswith("output") else None
            found.append(Moved(int(block[1]) if block else output, tensor.nbytes, device))
    return tuple(found)


def moved_tensors(
    config: ModelConfig, named: tuple[Moved, ...], cpu_experts: int
) -> tuple[Moved, ...]:
    """These, and the experts of so many layers."""
    experts = config.expert_bytes[:cpu_experts]
    return (*named, *(Moved(layer, size, CPU) for layer, size in enumerate(experts) if size))
