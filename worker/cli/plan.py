"""worker plan: how much memory a model needs, and what fits this machine.

With --request it plans for a program that places workers on other machines: a request and its
answer are one JSON object each, on standard input and output.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec
from msgspec.structs import replace

from worker import machine
from worker.cli.console import data_console, new_table, with_title, write_json
from worker.cli.main import parse
from worker.cli.model import model_path, with_draft_path
from worker.cli.options import settings_from
from worker.errors import UsageError, quantity
from worker.lifecycle.adapters import load_adapters
from worker.lifecycle.buffers import asking, plan_in_child
from worker.lifecycle.devices import Devices
from worker.lifecycle.prepared import (
    Fitted,
    Fitting,
    buffer_places,
    find_devices,
    find_projector,
    load_draft,
    memory_with,
    wishes_of,
)
from worker.machine import DeviceMemory, Memory, human_bytes
from worker.memory.contexts import AskBuffers
from worker.memory.embedding import embedding_shape
from worker.memory.plan import MemoryPlan, check_fit
from worker.model.architectures import SLIDING
from worker.model.config import ModelConfig, load_config
from worker.model.projector import ProjectorConfig
from worker.settings import OPTIONS, Settings

# Rows of the table -> parts of the plan that may be estimated.
_PARTS = {
    "KV cells": "kv", "recurrent state": "recurrent", "compute": "compute", "drafts": "draft",
    "vectors": "embedding", "projector": "projector",
}  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, then raise DoesNotFitError where it does not fit."""

    if arguments.request:
        write_json(_answer())
        return 0

    if arguments.file is not None:
        if arguments.model is not None:
            raise UsageError("Two models are named.", hint="Leave out FILE or --model.")
        arguments.model = arguments.file
    settings = with_draft_path(settings_from(arguments))
    config = load_config(model_path(settings), purpose="serve", wishes=wishes_of(settings))
    draft = load_draft(config, settings)
    adapters = [adapter.config for adapter in load_adapters(config, settings)]
    devices = find_devices(settings)
    memory = memory_with(devices)
    projector = find_projector(config, settings)
    fitting = Fitting(config, settings, memory, draft, adapters, projector)
    fitted = fitting.fit()

    def ask_and_fit() -> Fitted:
        with asking(config, draft) as ask:
            return fitting.fit(ask, buffer_places(config, settings, devices, draft))

    asked = ask_and_fit() if memory.devices else plan_in_child(ask_and_fit, Fitted)
    fitted = asked or fitted
    fitted.tell()
    plan = fitted.plan
    if arguments.json:
        write_json(plan)
    else:
        data_console().print(_table(config, settings, plan, projector))
        if plan.newer:
            data_console().print(plan.newer, soft_wrap=True, markup=False, highlight=False)
    check_fit(plan, config)
    return 0


def _table(
    config: ModelConfig, settings: Settings, plan: MemoryPlan, projector: ProjectorConfig | None
) -> Any:

    kind = settings.cache_type_k
    if settings.cache_type_v != kind:
        kind = f"{kind}/{settings.cache_type_v}"
    rows = (
        ("weights", plan.weights_bytes, config.quant),
        ("KV cells", plan.kv_bytes,
         f"{plan.num_cells:,} x {human_bytes(plan.kv_bytes_per_token)} ({kind})"),
        ("recurrent state", plan.recurrent_bytes, quantity(plan.num_slots, "sequence")),
        ("compute", plan.compute_bytes, f"{quantity(settings.ubatch_size, 'row')} at once"),
        ("logits", plan.output_bytes, f"{quantity(plan.num_slots, 'sequence')} and a prompt's"
         if not config.only_embeds else "each row of a step, read or not"),
        ("copies", plan.copy_bytes, "states on their way out of the KV cache and back"),
        ("process", plan.process_bytes, "interpreter, libraries, vocabulary"),
        ("adapters", plan.adapter_bytes, "their matrices, and room for more"),
        ("drafts", plan.draft_bytes, "a draft model or MTP heads: weights, KV cells, compute"),
        ("projector", plan.projector_bytes, "the image and audio encoder: weights, compute"
         + (f"; an image takes up to {projector.cells:,} cells" * bool(projector.cells)
            if projector else "")),
        ("vectors", plan.embedding_bytes, "a context of their own: KV cells, compute, logits"),
    )  # fmt: skip
    shape = embedding_shape(config, settings, plan.num_cells)
    title = f"{config.name or config.architecture}: "
    if not config.only_embeds:
        title += f"{plan.num_cells:,} cells, {quantity(plan.num_slots, 'sequence')} at once"
    if shape is not None:
        comma = "" if config.only_embeds else ", "
        title += f"{comma}texts of {quantity(shape.length, 'token', ',')}, pooling {shape.pooling}"
    if plan.gpu_layers:
        title += f", {plan.gpu_layers} of {config.layers + 1} layers offloaded"
    if plan.cpu_experts:
        title += f", of {plan.cpu_experts} the experts on the CPU"
    table = new_table(box=None, show_footer=True)
    first = "resident in ordinary use, while each sequence has its share of the cells"
    if plan.num_slots == 1 or config.only_embeds:
        first = "resident in ordinary use"
    verdict = "the most, if sequences share all cells: " + ("fits" if plan.fits else "does not fit")
    longest = f"room for {plan.max_cells:,} cells" if plan.max_cells else "no context fits"
    if config.only_embeds and shape is not None:
        longest = f"a text takes {quantity(shape.length, 'token', ',')} at most"
    elif config.context:
        most = min(plan.num_cells, config.context)
        longest += f"; a sequence takes {quantity(most, 'token', ',')} at most"
    sums = (plan.first_bytes, plan.total_bytes, plan.available_bytes, plan.cache_bytes)
    table.add_column("", footer="at first\ntotal\navailable\ncache")
    table.add_column("memory", justify="right", footer="\n".join(map(human_bytes, sums)))
    table.add_column("for", footer=f"{first}\n{verdict}\n{longest}\n{_cache(config, plan)}")
    for name, size, why in rows:
        if size:
            is_estimated = _PARTS.get(name) in plan.estimated
            table.add_row(name, human_bytes(size), why + ", estimated" * is_estimated)
    return with_title(title, table)


def _cache(config: ModelConfig, plan: MemoryPlan) -> str:
    """What the cache may hold. It is counted in tokens where nothing but their cells is kept."""

    if config.only_embeds:
        return "nothing is kept"
    if not plan.cache_bytes:
        return "no states of ended conversations are kept"
    what = "limit for states of ended conversations"
    windows = config.sliding_window and config.architecture in SLIDING
    if plan.recurrent_bytes or windows or not plan.kv_bytes_per_token:
        return what
    return f"{what}: {quantity(plan.cache_bytes // plan.kv_bytes_per_token, 'token', ',')}"


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
    fair_by: str


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


def _answer() -> PlanAnswer:
    """To what stands on standard input. Raises UsageError, ModelFileError.

    The environment does not count: the worker will run in another.
    """
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
    return _plan_places(found, settings, request.places) if request.places else found


def _plan_places(
    found: PlanAnswer, settings: Settings, places: tuple[PlannedPlace, ...]
) -> PlanAnswer:
    """This machine's CPU is taken to keep weights as those of the places do, and its library to
    need the same buffers. Those beside GPUs are estimated."""

    settings = with_draft_path(settings)
    config = load_config(model_path(settings), purpose="serve", wishes=wishes_of(settings))
    draft = load_draft(config, settings)
    own = memory_with(Devices())
    memories = [Memory(each.total, each.available, each.devices, own.packed) for each in places]
    projector = find_projector(config, settings)

    def fit(ask: AskBuffers | None = None) -> tuple[MemoryPlan, ...]:
        fittings = (
            Fitting(config, settings, memory, draft, projector=projector) for memory in memories
        )
        return tuple(each.fit(ask).plan for each in fittings)

    def ask_and_fit() -> tuple[MemoryPlan, ...]:
        with asking(config, draft) as ask:
            return fit(ask)

    plans = fit()
    plans = plan_in_child(ask_and_fit, tuple[MemoryPlan, ...]) or plans
    return replace(found, layers=config.layers + 1, plans=plans)
