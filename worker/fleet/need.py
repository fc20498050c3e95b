"""What one replica of a model needs of its machine, and the options that hold it to that.

The figures are those of `worker plan`. Its choices (context, sequences, cache) are made here, for
a share of a machine, and given to the worker as options: left to itself each of several workers
on a machine would take the memory that all of them see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from worker.fleet.choices import settings_of
from worker.fleet.device import FleetDevice
from worker.fleet.file import FleetModel, FleetReplicas
from worker.fleet.scale.count import ScaleBounds
from worker.machine import DeviceMemory

if TYPE_CHECKING:
    from worker.memory.plan import MemoryPlan
    from worker.model.config import ModelConfig
    from worker.settings import Settings

_MIB = 1 << 20
# Of a GPU that is not there.
_ANY_SIZE = 1 << 60
# Of the process that has the worker in its charge; measured, 88 MiB.
REPLICA_BYTES = 96 << 20


class FleetMachine(msgspec.Struct, frozen=True):
    """CPUs, bytes of memory and GPUs that workers may take on one machine.

    gpus     as Ray counts them
    devices  those of them that the worker's build sees there
    trouble  why these are not known, or ""
    node     Ray's id of it, or ""
    """

    name: str
    cpus: int
    memory: int
    gpus: int = 0
    devices: tuple[FleetDevice, ...] = ()
    trouble: str = ""
    node: str = ""

    @property
    def least_device(self) -> FleetDevice | None:
        """The GPU with the least room: which of them a replica gets is Ray's choice."""
        return min(self.devices, key=lambda device: device.room, default=None)


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """Of one replica.

    replicas   how many there are at least
    file       as the replica's machine finds it; "" is the embedded demo model
    cpus       compute threads
    memory     bytes: what `worker plan` says, the cache included, and the replica's process
    num_cells  of its KV cache
    num_slots  sequences at once
    queue      requests that may wait for one
    drain      seconds that its streams get when it is taken away
    options    of its worker: those of the file, then those that the plan has chosen
    gpus       whole ones, as Ray counts them
    device_memory  bytes that it needs on each of its GPUs, at most
    layers     all of its model, the output layer included
    gpu_layers those of them that are not on the worker's CPU
    rpc_nodes  further machines that hold layers of it, with as many CPUs and GPUs each
    rpc_memory bytes of host memory that it needs on each of these
    bounds     what makes more of them, or None: their number stays
    """

    model: str
    file: str
    replicas: int
    affinity: str
    cpus: int
    memory: int
    num_cells: int
    num_slots: int
    queue: int
    drain: float
    options: tuple[str, ...]
    gpus: int = 0
    device_memory: int = 0
    layers: int = 0
    gpu_layers: int = 0
    rpc_nodes: int = 0
    rpc_memory: int = 0
    bounds: ScaleBounds | None = None

    @property
    def layers_name(self) -> str:
        """What a plan calls an RPC server of it."""
        return f"{self.model}'s layers"

    def with_servers(self, servers: Sequence[str]) -> Need:
        """The same for a worker that uses these RPC servers (HOST:PORT)."""
        options = (*self.options, "--rpc", ",".join(servers))
        return msgspec.structs.replace(self, options=options)

    def may_be_on(self, machine: FleetMachine) -> bool:
        """Whether that machine's GPUs are enough, and all of them large enough."""
        least = machine.least_device
        return not self.gpus or (
            len(machine.devices) >= self.gpus
            and least is not None
            and least.room >= self.device_memory
        )

    @property
    def most(self) -> int:
        """How many replicas there may be."""
        return self.replicas if self.bounds is None else self.bounds.most


def need_of(name: str, model: FleetModel, machines: list[FleetMachine]) -> Need:
    """Planned for the share of a machine that its CPUs are, on the machine where that is least.

    What does not fit into its share may have the machine's whole memory. With `gpus` it is planned
    for the smallest GPUs that hold all layers, or as many as the file asks for; where none do, for
    the largest there are. Raises UsageError, ModelFileError.
    """
    from worker.cli.model import model_path, with_draft_path
    from worker.fleet.group.share import divided, options_of, shares
    from worker.lifecycle.prepared import load_draft, with_heads
    from worker.model.config import load_config

    settings = with_draft_path(settings_of(model.options, model.file))
    config = load_config(model_path(settings))
    draft = load_draft(config, settings)
    nodes, gpus = model.rpc_nodes, model.gpus
    settings = divided(config, with_heads(config, settings), nodes, gpus)
    cpus = settings.threads or 1
    able = [each for each in machines if each.cpus >= cpus] or machines
    least = min(able, key=lambda machine: machine.memory / machine.cpus)
    sizes: list[DeviceMemory | None] = [*_sizes(machines, gpus)] or [None]
    plans = [_planned(config, settings, draft, least, model, size) for size in sizes]
    holds_all = (
        plan.fits and (settings.n_gpu_layers is not None or plan.gpu_layers > config.layers)
        for plan in plans
    )
    chosen = next((number for number, holds in enumerate(holds_all) if holds), -1)
    device, plan = sizes[chosen], plans[chosen]
    each = shares(plan, nodes, gpus, unified=device is not None and device.unified)
    return Need(
        model=name,
        file=model.file or "",
        replicas=model.replicas if isinstance(model.replicas, int) else model.replicas.min,
        affinity=model.affinity,
        cpus=cpus,
        memory=each.own + plan.cache_bytes + REPLICA_BYTES,
        num_cells=plan.num_cells,
        num_slots=plan.num_slots,
        queue=settings.queue_size,
        drain=settings.drain_timeout,
        # Of two options that say the same the later one counts: these may repeat the file's.
        options=(
            *model.options,
            "--ctx-size", str(plan.num_cells),
            "--parallel", str(plan.num_slots),
            "--cache-ram", str(plan.cache_bytes // _MIB),
            "--threads", str(cpus),
            "--drain-timeout", f"{settings.drain_timeout:g}",
            *options_of(settings, plan, nodes, gpus),
        ),
        gpus=gpus,
        device_memory=each.device,
        layers=config.layers + 1,
        gpu_layers=plan.gpu_layers,
        rpc_nodes=nodes,
        rpc_memory=each.other,
        bounds=_bounds(model.replicas, plan.num_slots),
    )  # fmt: skip


def _sizes(machines: list[FleetMachine], gpus: int) -> list[DeviceMemory]:
    """Of GPUs for which a replica may be planned, the smallest first."""
    if not gpus:
        return []
    there = [each.least_device for each in machines if len(each.devices) >= gpus]
    sizes = {DeviceMemory("", each.room, each.unified) for each in there if each is not None}
    # Where there is none, what one would need is still told.
    return sorted(sizes, key=lambda size: size.available) or [DeviceMemory("", _ANY_SIZE)]


def _planned(
    config: ModelConfig, settings: Settings, draft: ModelConfig | None, least: FleetMachine,
    model: FleetModel, device: DeviceMemory | None,
) -> MemoryPlan:  # fmt: skip
    """The plan for a share of that machine, or for the whole of it, and for such GPUs.

    Its CPU is taken to keep weights as this one does.
    """
    from worker.fleet.group.share import with_devices
    from worker.lifecycle.devices import Devices
    from worker.lifecycle.prepared import memory_with
    from worker.memory.plan import estimate

    cpus = settings.threads or 1
    room = max(0, least.memory - REPLICA_BYTES)
    share = max(0, min(least.memory, least.memory * cpus // least.cpus) - REPLICA_BYTES)
    nodes, gpus = model.rpc_nodes, model.gpus
    whole = msgspec.structs.replace(memory_with(Devices()), total=room, available=room)
    fair = msgspec.structs.replace(whole, available=share)
    fair = with_devices(fair, share + REPLICA_BYTES, nodes, gpus, device)
    plan = estimate(config, settings, fair, draft)
    if plan.fits:
        return plan
    whole = with_devices(whole, least.memory, nodes, gpus, device)
    return estimate(config, settings, whole, draft)


def _bounds(replicas: int | FleetReplicas, slots: int) -> ScaleBounds | None:
    if isinstance(replicas, int):
        return None
    return ScaleBounds(
        least=replicas.min,
        most=replicas.max,
        idle=replicas.idle,
        first_token=replicas.first_token,
        slots=slots,
    )
