"""What one replica of a model needs of its machine, and the options that hold it to that.

The figures are those of `worker plan`. Its choices (context, sequences, cache) are made here, for
a share of a machine, and given to the worker as options: left to itself each of several workers
on a machine would take the memory that all of them see.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from worker.fleet.choices import settings_of
from worker.fleet.file import FleetModel, FleetReplicas
from worker.fleet.scale.count import ScaleBounds
from worker.machine import Memory

_MIB = 1 << 20
# Of the process that has the worker in its charge; measured, 88 MiB.
REPLICA_BYTES = 96 << 20


class FleetMachine(msgspec.Struct, frozen=True):
    """CPUs, bytes of memory and GPUs that workers may take on one machine."""

    name: str
    cpus: int
    memory: int
    gpus: int = 0


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
    rpc_nodes  further machines that hold layers of it, with as many CPUs and GPUs each
    rpc_memory bytes that it needs on each of these
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

    @property
    def most(self) -> int:
        """How many replicas there may be."""
        return self.replicas if self.bounds is None else self.bounds.most


def need_of(name: str, model: FleetModel, machines: list[FleetMachine]) -> Need:
    """Planned for the share of a machine that its CPUs are, on the machine where that is least.

    What does not fit into its share may have the machine's whole memory. Raises UsageError,
    ModelFileError.
    """
    from worker.cli.model import model_path, with_draft_path
    from worker.fleet.group.share import divided, options_of, shares, with_servers
    from worker.lifecycle.prepared import load_draft, with_heads
    from worker.memory.plan import estimate
    from worker.model.config import load_config

    settings = with_draft_path(settings_of(model.options, model.file))
    config = load_config(model_path(settings))
    draft = load_draft(config, settings)
    settings = divided(config, with_heads(config, settings), model.rpc_nodes)
    cpus = settings.threads or 1
    able = [each for each in machines if each.cpus >= cpus] or machines
    least = min(able, key=lambda machine: machine.memory / machine.cpus)
    room = max(0, least.memory - REPLICA_BYTES)
    share = max(0, min(least.memory, least.memory * cpus // least.cpus) - REPLICA_BYTES)
    fair = with_servers(Memory(room, share), share + REPLICA_BYTES, model.rpc_nodes)
    plan = estimate(config, settings, fair, draft)
    if not plan.fits:
        whole = with_servers(Memory(room, room), least.memory, model.rpc_nodes)
        plan = estimate(config, settings, whole, draft)
    own, other = shares(plan)
    bounds = _bounds(model.replicas, plan.num_slots)
    return Need(
        model=name,
        file=model.file or "",
        replicas=model.replicas if isinstance(model.replicas, int) else model.replicas.min,
        affinity=model.affinity,
        cpus=cpus,
        memory=own + plan.cache_bytes + REPLICA_BYTES,
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
            *(options_of(settings, plan) if model.rpc_nodes else ()),
        ),
        gpus=model.gpus,
        rpc_nodes=model.rpc_nodes,
        rpc_memory=other,
        bounds=bounds,
    )  # fmt: skip


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
