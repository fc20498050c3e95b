"""worker plan --request: plans for a program that places workers on machines other than this one.

A request and its answer are one JSON object each, on standard input and output.
"""

from __future__ import annotations

import sys

import msgspec
from msgspec.structs import replace

from worker import machine
from worker.cli.options import settings_from
from worker.errors import UsageError
from worker.machine import DeviceMemory, Memory
from worker.memory.plan import MemoryPlan
from worker.settings import OPTIONS, Settings


class PlannedPlace(msgspec.Struct, frozen=True):
    """A machine that a worker may be put on: bytes of memory, and what its devices have."""

    total: int
    available: int
    devices: tuple[DeviceMemory, ...] = ()


class PlanRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`options`: of `worker serve`; `places`: what to plan for, the model is read for these."""

    options: tuple[str, ...] = ()
    places: tuple[PlannedPlace, ...] = ()


class ChosenOptions(msgspec.Struct, frozen=True):
    """What the options say, and the defaults where they say nothing."""

    threads: int | None
    queue_size: int
    drain_timeout: float
    n_gpu_layers: int | None
    tensor_split: tuple[float, ...]
    device: tuple[str, ...]
    rpc: tuple[str, ...]


class PlanAnswer(msgspec.Struct, frozen=True):
    """The answer.

    given   fields of the options that were given -> the name of the option
    here    this machine
    cpus    that may be used here
    layers  of the model, the output layer included; 0 where no place was named
    plans   one for each place, whether it fits or not
    """

    given: dict[str, str]
    options: ChosenOptions
    here: PlannedPlace
    cpus: int
    layers: int = 0
    plans: tuple[MemoryPlan, ...] = ()


def answer() -> PlanAnswer:
    """To what stands on standard input. Raises UsageError, ModelFileError.

    The environment does not count: the worker will run in another.
    """
    from worker.cli.main import parse

    try:
        request = msgspec.json.decode(sys.stdin.buffer.read(), type=PlanRequest)
    except msgspec.DecodeError as error:
        raise UsageError(f"The request cannot be read: {error}.") from None
    try:
        arguments = parse(["serve", *request.options])
    except SystemExit:
        raise UsageError("--help is no option of a worker that serves.") from None
    settings = settings_from(arguments, {})
    flags = {option.field: option.flags[0] for option in reversed(OPTIONS)}
    here = machine.memory()
    found = PlanAnswer(
        {field: flag for field, flag in flags.items() if getattr(arguments, field) is not None},
        msgspec.convert(settings, ChosenOptions, from_attributes=True),
        PlannedPlace(here.total, here.available),
        machine.usable_cpus(),
    )
    return _planned(found, settings, request.places) if request.places else found


def _planned(found: PlanAnswer, settings: Settings, places: tuple[PlannedPlace, ...]) -> PlanAnswer:
    """This machine's CPU is taken to keep weights as those of the places do."""
    from worker.cli.model import model_path, with_draft_path
    from worker.lifecycle.devices import Devices
    from worker.lifecycle.prepared import (
        find_projector,
        load_draft,
        memory_with,
        wishes_of,
        with_heads,
    )
    from worker.memory.plan import estimate
    from worker.model.config import load_config

    settings = with_draft_path(settings)
    config = load_config(model_path(settings), purpose="serve", wishes=wishes_of(settings))
    draft = load_draft(config, settings)
    own = memory_with(Devices())
    memories = (Memory(each.total, each.available, each.devices, own.packed) for each in places)
    beside = find_projector(config, settings)
    plans = tuple(
        estimate(config, with_heads(config, settings, memory), memory, draft, projector=beside)
        for memory in memories
    )
    return replace(found, layers=config.layers + 1, plans=plans)
