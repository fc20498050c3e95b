"""How a model is divided over a replica's machines and their GPUs, and what each must have.

Each machine gets as many layers as each other one, as far as that goes, and so does each GPU; the
worker's own also holds the embeddings of tokens, its cache and its process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from gguf_fleet.command import MachineDevice, MachineRoom, ModelPlan, WorkerOptions

_HOST = "CPU"  # as a plan calls the host

# Of an RPC server's process without tensors; measured on a CPU, 40 MiB.
RPC_BYTES = 64 << 20


class Shares(msgspec.Struct, frozen=True):
    """Bytes of host memory on the worker's machine, the most on any of the others, and the most on
    any GPU."""

    own: int
    other: int
    device: int


def division(asked: WorkerOptions, layers: int, nodes: int, gpus: int) -> tuple[str, ...]:
    """Options that divide a model of so many layers, the output layer included, over so many RPC
    servers and so many GPUs on each machine, where those that were asked leave that open."""
    if not nodes and not gpus:
        return ()
    split = asked.tensor_split or (1.0,) * len(names(nodes, gpus))
    options = ("--tensor-split", ",".join(f"{share:g}" for share in split))
    if gpus or asked.n_gpu_layers is not None:
        return options
    return (*options, "--n-gpu-layers", str(math.ceil(layers * nodes / (nodes + 1))))


def names(nodes: int, gpus: int) -> tuple[str, ...]:
    """The devices of a replica as its worker finds them: first those of the others."""
    servers = tuple(f"RPC{number}" for number in range(nodes * max(1, gpus)))
    return (*servers, *(f"GPU{number}" for number in range(gpus)))


def room_of(
    total: int, available: int, each: int, nodes: int, gpus: int, device: MachineDevice | None
) -> MachineRoom:
    """The worker's machine, and all devices of a replica.

    each    bytes of host memory on each of the other machines
    device  what each GPU has; None: there are none
    """
    if device is None:
        device = MachineDevice("", max(0, each - RPC_BYTES))
    count = len(names(nodes, gpus)) - gpus
    devices = tuple(
        MachineDevice(name, device.available, device.unified and number >= count)
        for number, name in enumerate(names(nodes, gpus))
    )
    return MachineRoom(total, available, devices)


def shares(plan: ModelPlan, nodes: int, gpus: int, *, unified: bool) -> Shares:
    """What of the plan each machine and each GPU holds.

    unified: the GPUs use their machine's memory
    """
    each = names(nodes, gpus)
    count = max(1, gpus)
    machines = [each[first : first + count] for first in range(0, nodes * count, count)]
    own = each[nodes * count :]
    on_host = unified or not gpus
    return Shares(
        own=_on(plan, [_HOST, *(own if unified else ())]),
        other=max(
            (RPC_BYTES + (_on(plan, there) if on_host else 0) for there in machines), default=0
        ),
        device=0 if on_host else max(_on(plan, [name]) for name in each),
    )


def keep_to(asked: WorkerOptions, plan: ModelPlan, nodes: int, gpus: int) -> tuple[str, ...]:
    """What keeps the worker to the devices of the plan.

    Ray hides the GPUs of others from a process that was given some, but none from one that was
    given none.
    """
    if not nodes and not gpus:
        return () if asked.rpc else ("--device", "none")
    layers = ("--n-gpu-layers", str(plan.gpu_layers))
    if plan.cpu_experts:
        layers += ("--n-cpu-moe", str(plan.cpu_experts))
    return layers if gpus else (*layers, "--device", ",".join(names(nodes, 0)))


def _on(plan: ModelPlan, devices: Iterable[str]) -> int:
    return sum(each.nbytes for each in plan.devices if each.device in devices)
