"""Where the replicas of a fleet would run, and whether all of them fit."""

from __future__ import annotations

import msgspec

from gguf_fleet.command import version
from gguf_fleet.errors import DoesNotFitError, UsageError
from gguf_fleet.file import Fleet
from gguf_fleet.need import FleetMachine, Need, need_of
from gguf_fleet.text import human_bytes


class FleetPlace(msgspec.Struct, frozen=True):
    """A machine, and the models of the replicas on it; a model with two replicas is named twice.

    devices  the model on each of the machine's GPUs; "": none. Which one it is is Ray's choice
    """

    machine: FleetMachine
    models: tuple[str, ...]
    devices: tuple[str, ...] = ()


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
        return not self.left_over


def plan_fleet(fleet: Fleet, machines: list[FleetMachine]) -> FleetPlan:
    """What each model needs and one way to place all of it. Raises what `need_of` raises."""
    if any(model.rpc_nodes for model in fleet.models.values()) and not version().build.rpc:
        raise UsageError(
            "rpc_nodes needs a build with the RPC backend, and this one has none.",
            hint="Install one with `make install RPC=1 FLEET=1`.",
        )
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
    """The largest first, each where most memory is left among those that have room; what needs
    GPUs comes before what does not.

    Ray may choose other places; what fits here fits there, unless it leaves gaps that are too
    small for a large replica.
    """
    rooms = [_Room(machine) for machine in machines]
    left_over: list[str] = []
    for need in sorted(needs, key=_size, reverse=True):
        # The worker and its RPC servers, each on a machine of its own.
        others = [(need.rpc_memory, need.layers_name)] * need.rpc_nodes
        parts = sorted([(need.memory, need.model), *others], reverse=True)
        for _ in range(need.replicas):
            taken: list[tuple[_Room, int, str]] = []
            for nbytes, label in parts:
                used = [room for room, _, _ in taken]
                able = [room for room in rooms if room not in used and room.holds(need, nbytes)]
                if able:
                    taken.append((max(able, key=lambda room: room.left), nbytes, label))
            if len(taken) < len(parts):
                left_over.append(need.model)
                continue
            for room, nbytes, label in taken:
                room.take(need, nbytes, label)
    return FleetPlan(tuple(needs), tuple(room.place for room in rooms), tuple(left_over))


def _size(need: Need) -> tuple[int, int, int]:
    return need.device_memory, need.gpus, max(need.memory, need.rpc_memory)


class _Room:
    """What is left of a machine."""

    def __init__(self, machine: FleetMachine) -> None:
        self._machine = machine
        self._cpus, self._memory = machine.cpus, machine.memory
        self._models: list[str] = []
        self._on_devices: list[str] = []

    @property
    def left(self) -> tuple[int, int]:
        """(bytes of memory, CPUs)."""
        return self._memory, self._cpus

    @property
    def place(self) -> FleetPlace:
        machine = self._machine
        free = len(machine.devices) - len(self._on_devices)
        devices = (*self._on_devices, *("",) * free)
        return FleetPlace(machine, tuple(self._models), devices)

    def holds(self, need: Need, nbytes: int) -> bool:
        """Whether a part of a replica, with so much memory, has room here."""
        gpus = len(self._on_devices) + need.gpus
        return (
            self._cpus >= need.cpus
            and self._memory >= nbytes
            and need.may_be_on(self._machine)
            and gpus <= len(self._machine.devices)
        )

    def take(self, need: Need, nbytes: int, label: str) -> None:
        self._cpus -= need.cpus
        self._memory -= nbytes
        self._models.append(label)
        self._on_devices += [label] * need.gpus


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
    none = f"{missing} of {need.replicas or 1} replicas of {need.model} have no place: "
    why, hint = _lacks_gpus(need, [each.machine for each in plan.places])
    if why:
        raise DoesNotFitError(f"{none}{why}.", hint=hint)
    gpus = f", {_gpus(need)}" if need.gpus else ""
    others = f", and {human_bytes(need.rpc_memory)} on each of {need.rpc_nodes} other machines"
    raise DoesNotFitError(
        f"{none}each needs {need.cpus} CPUs{gpus} and {human_bytes(need.memory)}"
        f"{others if need.rpc_nodes else ''}.",
        hint="Take fewer replicas or threads, a shorter --ctx-size, or more machines.",
    )


def _gpus(need: Need) -> str:
    count = f"{need.gpus} GPUs" if need.gpus > 1 else "1 GPU"
    each = " each" if need.gpus > 1 else ""
    return f"{count} with {human_bytes(need.device_memory)}{each}" if need.device_memory else count


def _more_than(count: int) -> str:
    return f"more than {count}" if count else "any"


def _lacks_gpus(need: Need, machines: list[FleetMachine]) -> tuple[str, str]:
    """(why no machine has the GPUs for it, and what to do), where that is so; else empty texts."""
    if not need.gpus or any(map(need.may_be_on, machines)):
        return "", ""
    counted = [each for each in machines if each.gpus >= need.gpus]
    if not counted:
        most = max(machine.gpus for machine in machines)
        return (
            f"each needs {_gpus(need)}, and no machine has {_more_than(most)}",
            "`worker version` shows the GPUs that a build sees, `ray status` what Ray counts.",
        )
    seeing = [each for each in counted if len(each.devices) >= need.gpus]
    if not seeing:
        blind = counted[0]
        sees = blind.trouble or f"the worker's build there sees {len(blind.devices)}"
        return (
            f"each needs {_gpus(need)}; {blind.name} has {blind.gpus}, and {sees.rstrip('.')}",
            "Install a build for its GPUs there, such as `make install BACKEND=cuda FLEET=1`; "
            "`worker version` shows what it sees.",
        )
    least = [(each.least_device, each.name) for each in seeing]
    device, name = max((one.room, f"{one.name} of {name}") for one, name in least if one)
    return (
        f"each needs {_gpus(need)}, and the most that one has is {human_bytes(device)} ({name})",
        "Take a shorter --ctx-size, fewer layers (--n-gpu-layers), more `gpus` or `rpc_nodes`.",
    )
