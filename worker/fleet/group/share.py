"""How a model is divided over a replica's machines and their GPUs, and what each must have.

Each machine gets as many layers as each other one, as far as that goes, and so does each GPU; the
worker's own also holds the embeddings of tokens, its cache and its process.
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

# Of an RPC server's process without tensors; measured on a CPU, 40 MiB.
RPC_BYTES = 64 << 20


class Shares(msgspec.Struct, frozen=True):
    """Bytes of host memory on the worker's machine, the most on any of the others, and the most on
    any GPU."""

    own: int
    other: int
    device: int


def divided(config: ModelConfig, settings: Settings, nodes: int, gpus: int) -> Settings:
    """The settings, with layers and devices of so many RPC servers, and so many GPUs on each
    machine, where they leave that open.

    llama.cpp counts the output layer as one.
    """
    if not nodes and not gpus:
        return settings
    layers = settings.n_gpu_layers
    if not gpus and layers is None:
        layers = math.ceil((config.layers + 1) * nodes / (nodes + 1))
    return msgspec.structs.replace(
        settings,
        n_gpu_layers=layers,
        tensor_split=settings.tensor_split or (1.0,) * len(names(nodes, gpus)),
    )


def names(nodes: int, gpus: int) -> tuple[str, ...]:
    """The devices of a replica as its worker finds them: first those of the others."""
    servers = tuple(f"RPC{number}" for number in range(nodes * max(1, gpus)))
    return (*servers, *(f"GPU{number}" for number in range(gpus)))


def with_devices(
    memory: Memory, room: int, nodes: int, gpus: int, device: DeviceMemory | None
) -> Memory:
    """The memory, and that of all devices of a replica.

    room    bytes of host memory on each of the other machines
    device  what each GPU has; None: there are none
    """
    if device is None:
        device = DeviceMemory("", max(0, room - RPC_BYTES))
    count = len(names(nodes, gpus)) - gpus
    devices = tuple(
        DeviceMemory(name, device.available, device.unified and number >= count)
        for number, name in enumerate(names(nodes, gpus))
    )
    return msgspec.structs.replace(memory, devices=devices)


def shares(plan: MemoryPlan, nodes: int, gpus: int, *, unified: bool) -> Shares:
    """What of the plan each machine and each GPU holds.

    unified: the GPUs use their machine's memory
    """
    each = names(nodes, gpus)
    count = max(1, gpus)
    machines = [each[first : first + count] for first in range(0, nodes * count, count)]
    own = each[nodes * count :]
    on_host = unified or not gpus
    return Shares(
        own=_on(plan, [HOST, *(own if unified else ())]),
        other=max(
            (RPC_BYTES + (_on(plan, there) if on_host else 0) for there in machines), default=0
        ),
        device=0 if on_host else max(_on(plan, [name]) for name in each),
    )


def options_of(settings: Settings, plan: MemoryPlan, nodes: int, gpus: int) -> tuple[str, ...]:
    """What keeps the worker to the devices and the division of the plan.

    Ray hides the GPUs of others from a process that was given some, but none from one that was
    given none.
    """
    if not nodes and not gpus:
        return () if settings.rpc else ("--device", "none")
    split = ",".join(f"{share:g}" for share in settings.tensor_split)
    divided = ("--n-gpu-layers", str(plan.gpu_layers), "--tensor-split", split)
    return divided if gpus else (*divided, "--device", ",".join(names(nodes, 0)))


def _on(plan: MemoryPlan, devices: Iterable[str]) -> int:
    return sum(each.nbytes for each in plan.devices if each.device in devices)
