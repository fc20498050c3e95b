"""What one replica of a model needs of its machine, and the options that hold it to that.

The figures are those of `worker plan`. Its choices (context, sequences, cache) are asked for here,
for a share of a machine, and given to the worker as options: left to itself each of several workers
on a machine would take the memory that all of them see.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gguf_fleet.choices import with_defaults
from gguf_fleet.command import MachineDevice, ModelPlan, ask_plan
from gguf_fleet.device import FleetDevice
from gguf_fleet.file import FleetModel, FleetReplicas
from gguf_fleet.group.share import division, keep_to, room_of, shares
from gguf_fleet.scale.count import ScaleBounds

_MIB = 1 << 20
# Of a GPU that is not there.
_ANY_SIZE = 1 << 60
# Of the process that has the worker in its charge; measured, 99 MiB.
REPLICA_BYTES = 112 << 20


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
        return self.replicas if self.bounds is None else self.bounds.most


def need_of(name: str, model: FleetModel, machines: list[FleetMachine]) -> Need:
    """Planned for the share of a machine that its CPUs are, on the machine where that is least.

    What does not fit into its share may have the machine's whole memory. With `gpus` it is planned
    for the smallest GPUs that hold all layers, or as many as the file asks for; where none do, for
    the largest there are. Raises SaidError: what the worker says of its options or its model.
    """
    nodes, gpus = model.rpc_nodes, model.gpus
    options = with_defaults(model.options)
    named = ("--model", model.file) if model.file else ()
    asked = ask_plan(options).options
    cpus = asked.threads or 1
    able = [each for each in machines if each.cpus >= cpus] or machines
    least = min(able, key=lambda machine: machine.memory / machine.cpus)
    share = min(least.memory, least.memory * cpus // least.cpus)
    sizes: list[MachineDevice | None] = [*_sizes(machines, gpus)] or [None]
    rooms = tuple(
        room_of(max(0, least.memory - REPLICA_BYTES), max(0, held - REPLICA_BYTES), held,
                nodes, gpus, size)
        for size in sizes
        for held in (share, least.memory)
    )  # fmt: skip
    layers = ask_plan((*named, *options), rooms[:1]).layers if nodes else 0
    options += division(asked, layers, nodes, gpus)
    said = ask_plan((*named, *options), rooms)
    # Of each two the first is for the share.
    plans = [fair if fair.fits else whole for fair, whole in _pairs(said.plans)]
    holds_all = (
        plan.fits
        and (
            said.options.n_gpu_layers is not None
            or (plan.gpu_layers == said.layers and not plan.cpu_experts)
        )
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
        queue=asked.queue_size,
        drain=asked.drain_timeout,
        # Of two options that say the same the later one counts: these may repeat the file's.
        options=(
            *options,
            "--ctx-size", str(plan.num_cells),
            "--parallel", str(plan.num_slots),
            "--cache-ram", str(plan.cache_bytes // _MIB),
            "--threads", str(cpus),
            *keep_to(asked, plan, nodes, gpus),
        ),
        gpus=gpus,
        device_memory=each.device,
        layers=said.layers,
        gpu_layers=plan.gpu_layers,
        rpc_nodes=nodes,
        rpc_memory=each.other,
        bounds=_bounds(model.replicas, plan.num_slots),
    )  # fmt: skip


def _pairs(plans: tuple[ModelPlan, ...]) -> list[tuple[ModelPlan, ModelPlan]]:
    return list(zip(plans[::2], plans[1::2], strict=True))


def _sizes(machines: list[FleetMachine], gpus: int) -> list[MachineDevice]:
    """Of GPUs for which a replica may be planned, the smallest first."""
    if not gpus:
        return []
    there = [each.least_device for each in machines if len(each.devices) >= gpus]
    sizes = {MachineDevice("", each.room, each.unified) for each in there if each is not None}
    # Where there is none, what one would need is still told.
    return sorted(sizes, key=lambda size: size.available) or [MachineDevice("", _ANY_SIZE)]


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
