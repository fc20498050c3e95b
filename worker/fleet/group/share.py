"""How a model is divided over a replica's machines, and what each of them must have.

Each machine gets as many layers as each other one, as far as that goes; the worker's own also
holds the embeddings of tokens, its cache and its process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from worker.machine import DeviceMemory, Memory
from worker.memory.offload import HOST
from worker.memory.plan import MemoryPlan
from worker.model.config import ModelConfig
from worker.settings import Settings

# Of an RPC server's process without tensors; measured, 40 MiB.
RPC_BYTES = 64 << 20


def divided(config: ModelConfig, settings: Settings, nodes: int) -> Settings:
    """The settings, with layers and devices of so many RPC servers where they leave that open.

    llama.cpp counts the output layer as one.
    """
    if not nodes:
        return settings
    layers = math.ceil((config.layers + 1) * nodes / (nodes + 1))
    return msgspec.structs.replace(
        settings,
        n_gpu_layers=layers if settings.n_gpu_layers is None else settings.n_gpu_layers,
        tensor_split=settings.tensor_split or (1.0,) * nodes,
    )


def with_servers(memory: Memory, room: int, nodes: int) -> Memory:
    """The memory, and that of so many RPC servers with `room` bytes each."""
    devices = tuple(
        DeviceMemory(f"RPC{number}", max(0, room - RPC_BYTES)) for number in range(nodes)
    )
    return msgspec.structs.replace(memory, devices=devices)


def shares(plan: MemoryPlan) -> tuple[int, int]:
    """Bytes on the worker's machine, and the most on any of the others."""
    return _on(plan, [HOST]), max(
        (_on(plan, [name]) + RPC_BYTES for name in {each.device for each in plan.devices} - {HOST}),
        default=0,
    )


def options_of(settings: Settings, plan: MemoryPlan) -> tuple[str, ...]:
    """What tells the worker to divide the model as the plan does."""
    split = ",".join(f"{share:g}" for share in settings.tensor_split)
    return "--n-gpu-layers", str(plan.gpu_layers), "--tensor-split", split


def _on(plan: MemoryPlan, names: Iterable[str]) -> int:
    return sum(each.nbytes for each in plan.devices if each.device in names)
