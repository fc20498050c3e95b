"""Where the replicas of a fleet would run, and whether all of them fit."""

from __future__ import annotations

import msgspec

from worker.errors import DoesNotFitError
from worker.fleet.file import Fleet
from worker.fleet.need import FleetMachine, Need, need_of
from worker.machine import human_bytes


class FleetPlace(msgspec.Struct, frozen=True):
    """A machine, and the models of the replicas on it; a model with two replicas is named twice."""

    machine: FleetMachine
    models: tuple[str, ...]


class FleetPlan(msgspec.Struct, frozen=True):
    """`left_over`: the models of the replicas for which no machine has room.

    places        of as many replicas as there are at least
    left_at_most  the same as `left_over` with as many replicas as there may be
    """

    needs: tuple[Need, ...]
    places: tuple[FleetPlace, ...]
    left_over: tuple[str, ...]
    left_at_most: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether each replica has a place."""
        return not self.left_over


def plan_fleet(fleet: Fleet, machines: list[FleetMachine]) -> FleetPlan:
    """What each model needs and one way to place all of it. Raises what `need_of` raises."""
    if any(model.rpc_nodes for model in fleet.models.values()):
        from worker.lifecycle.prepared import check_rpc_build

        check_rpc_build("rpc_nodes")
    needs = [need_of(name, model, machines) for name, model in fleet.models.items()]
    return plan_needs(needs, machines)


def plan_needs(needs: list[Need], machines: list[FleetMachine]) -> FleetPlan:
    """The plan for needs that are known. A model of which there may be no replica is left over
    where no machine has room for one, though it were alone."""
    plan = place(needs, machines)
    most = place([msgspec.structs.replace(need, replicas=need.most) for need in needs], machines)
    asleep = [msgspec.structs.replace(need, replicas=1) for need in needs if not need.replicas]
    too_large = tuple(name for need in asleep for name in place([need], machines).left_over)
    return msgspec.structs.replace(
        plan, left_over=plan.left_over + too_large, left_at_most=most.left_over
    )


def place(needs: list[Need], machines: list[FleetMachine]) -> FleetPlan:
    """The largest first, each where most memory is left among those that have room.

    Ray may choose other places; what fits here fits there, unless it leaves gaps that are too
    small for a large replica.
    """
    cpus = {machine.name: machine.cpus for machine in machines}
    memory = {machine.name: machine.memory for machine in machines}
    gpus = {machine.name: machine.gpus for machine in machines}
    placed: dict[str, list[str]] = {machine.name: [] for machine in machines}
    left_over: list[str] = []
    for need in sorted(needs, key=lambda need: -max(need.memory, need.rpc_memory)):
        # The worker and its RPC servers, each on a machine of its own.
        others = [(need.rpc_memory, need.layers_name)] * need.rpc_nodes
        parts = sorted([(need.memory, need.model), *others], reverse=True)
        for _ in range(need.replicas):
            taken: dict[str, tuple[int, str]] = {}
            for part in parts:
                able = [
                    name
                    for name in placed
                    if cpus[name] >= need.cpus
                    and gpus[name] >= need.gpus
                    and memory[name] >= part[0]
                ]
                if apart := [name for name in able if name not in taken]:
                    taken[max(apart, key=lambda name: (memory[name], cpus[name]))] = part
            if len(taken) < len(parts):
                left_over.append(need.model)
                continue
            for name, (nbytes, label) in taken.items():
                cpus[name] -= need.cpus
                gpus[name] -= need.gpus
                memory[name] -= nbytes
                placed[name].append(label)
    places = tuple(FleetPlace(machine, tuple(placed[machine.name])) for machine in machines)
    return FleetPlan(tuple(needs), places, tuple(left_over))


def fits_one_more(plan: FleetPlan, model: str) -> bool:
    """Whether there would be room for one replica more of this model than there may be."""
    more = [
        msgspec.structs.replace(need, replicas=need.most + (need.model == model))
        for need in plan.needs
    ]
    return place(more, [each.machine for each in plan.places]).fits


def check_fits(plan: FleetPlan) -> None:
    """Raise DoesNotFitError for the first replica that has no place."""
    if plan.fits:
        return
    need = next(need for need in plan.needs if need.model in plan.left_over)
    missing = plan.left_over.count(need.model)
    gpus = f", {need.gpus} GPUs" if need.gpus else ""
    others = f", and {human_bytes(need.rpc_memory)} on each of {need.rpc_nodes} other machines"
    raise DoesNotFitError(
        f"{missing} of {need.replicas or 1} replicas of {need.model} have no place: each needs "
        f"{need.cpus} CPUs{gpus} and {human_bytes(need.memory)}"
        f"{others if need.rpc_nodes else ''}.",
        hint="Take fewer replicas or threads, a shorter --ctx-size, or more machines.",
    )
