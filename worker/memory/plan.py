"""ModelConfig + Settings -> MemoryPlan: what a worker will hold, and the context that fits.

The plan counts what llama.cpp allocates and what the process itself needs. If the library can be
asked (`AskBuffers`), it tells what contexts take. Else that is estimated (`buffers.py`,
`layers.py`), as it is of sizes between those that were asked. `benchmarks/memory_plan.py` compares
the plan with what llama.cpp reports and with the resident memory.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import msgspec

from worker.errors import DoesNotFitError
from worker.limits import MEDIA_KEPT, MEDIA_LENT
from worker.machine import Memory, human_bytes
from worker.memory.buffers import (
    CHUNK_OUTPUTS,
    PIECE_ROWS,
    check_cache_types,
    compute_bytes,
    kv_bytes_per_token,
    output_bytes,
    step_bytes,
    used_bytes,
    weights_bytes,
)
from worker.memory.companions import (
    HEAD_LENGTH,
    adapters_bytes,
    context_bytes,
    draft_bytes,
    eagle_bytes,
    eagle_outputs,
    heads_bytes,
    heads_model,
    num_states_kept,
    room_bytes,
)
from worker.memory.embedding import EmbeddingShape, embedding_bytes, embedding_shape, longest_text
from worker.memory.offload import (
    HOST,
    Moved,
    Part,
    Placement,
    layers_to_try,
    moved_tensors,
    named_tensors,
    place,
)
from worker.memory.saved_states import MIB, copy_bytes, memory_limit, state_bytes
from worker.model.adapter import AdapterConfig
from worker.model.architectures import doubt
from worker.model.config import ModelConfig
from worker.model.drafts import reads_states
from worker.model.projector import ProjectorConfig
from worker.settings import Settings

# llama.cpp rounds a context up to this many cells.
CELL_STEP = 256
MIN_CELLS = 512
# One default for all machines: most models were trained on this much, and a CPU already takes
# minutes to read such a prompt. Who needs more must ask, because neighbours lose the memory.
DEFAULT_CELLS = 32_768
# The rest is left to other processes and to the system's file cache.
DEFAULT_SHARE = 0.8
MAX_CELLS = 2**31 - CELL_STEP
# The process that has served a few requests: interpreter, libraries, graphs, threads. A token: its
# entries in llama.cpp's vocabulary and in our table of pieces; a merge: in the vocabulary. After
# minutes with many clients it is some MiB more. Measured with 2,048 to 262,144 tokens (x86-64
# Linux, Python 3.11).
_PROCESS_BYTES = 97 << 20
# Of an encoder, without an engine that writes.
_ENCODER_BYTES = 84 << 20
_TOKEN_BYTES, _MERGE_BYTES = 200, 100
_BUSY_BYTES = 15 << 20

# Layers are offloaded as long as the context can be this long; else fewer layers are.
OFFLOADING_CELLS = 4096
_TIGHT = 0.9
# The answers are right for the sizes of one plan, and may make it another plan.
_ROUNDS = 3
# It is not asked of more cells, for each of which llama.cpp takes memory even then. Beyond them
# the buffers grow in proportion.
_ASKED_CELLS = 1 << 18
# Parts whose buffers are estimated, unless llama.cpp is asked; it does not tell the last one's.
_ESTIMATED: tuple[Part, ...] = ("compute", "draft", "embedding", "projector")
# A size is logged in steps of 10 KiB, of cells for each kind of layer.
_ROUNDING = 4 * 10_486


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that a worker will hold when it is busy, and what the machine has for it.

    num_cells           cells of the KV cache where all sequences share them; where each slot has
                        cells of its own, they are as many or a few less
    weights_bytes       tensors as llama.cpp stores them
    kv_bytes            attention cells
    recurrent_bytes     state of recurrent layers, one for each slot
    compute_bytes       tensors inside a step
    output_bytes        logits that wait to be sampled
    copy_bytes          buffers through which states leave the KV cache and come back
    process_bytes       interpreter, libraries, vocabulary; media of requests
    draft_bytes         all that a model takes that guesses tokens; or cells, compute and waiting
                        states of heads that do, whose weights are among the model's
    adapter_bytes       adapters, and room for more
    embedding_bytes     a context that makes vectors of texts beside one that writes
    projector_bytes     what makes vectors of pictures and sounds: weights, compute at the largest
    gpu_layers          layers that go to `memory.devices`, the output layer first
    cpu_experts         layers, the first ones, whose experts stay on the CPU
    max_cells           the longest context that fits with these slots and layers; 0: none fits
    max_slots           the most sequences that fit with this context; 0: none fit
    cache_bytes         limit for the states of ended sequences in host memory; not in the total,
                        because a worker starts with none
    max_cache_bytes     the largest such limit that fits beside the rest; 0: none fits
    first_bytes         what is resident in ordinary use while each slot has cells of its own: until
                        a sequence needs more than its share of them, and all share one pool. Steps
                        are no longer than the CPU's pieces of prompts, texts to embed as long at
                        most, and no states are copied.
    kv_bytes_per_token  what one more cell of context costs in the KV cache
    devices             the same bytes by device
    is_asked            llama.cpp said what contexts take; else it is estimated
    estimated           parts whose buffers are estimated
    newer               what is not known, for the architecture is newer than the worker; None: all
                        is
    """

    num_cells: int
    num_slots: int
    weights_bytes: int
    kv_bytes: int
    recurrent_bytes: int
    compute_bytes: int
    output_bytes: int
    copy_bytes: int
    process_bytes: int
    draft_bytes: int
    adapter_bytes: int
    embedding_bytes: int
    projector_bytes: int
    total_bytes: int
    first_bytes: int
    available_bytes: int
    gpu_layers: int
    cpu_experts: int
    max_cells: int
    max_slots: int
    cache_bytes: int
    max_cache_bytes: int
    kv_bytes_per_token: int
    fits: bool
    devices: tuple[Placement, ...]
    is_asked: bool = False
    estimated: tuple[Part, ...] = ()
    newer: str | None = None


class ContextBytes(NamedTuple):
    """Bytes that llama.cpp allocates for a context: cells, recurrent states, compute buffers."""

    kv: int
    recurrent: int
    compute: int


class AskBuffers(Protocol):
    """Asks the library for the buffers of a context.

    unified        one pool of cells; else each slot has its own, as far as there are enough
    chunk_outputs  see `ContextOptions`
    shape          of a context for vectors
    beside         of what guesses tokens: the draft model, or the model's heads
    """

    def __call__(
        self,
        settings: Settings,
        num_cells: int,
        *,
        unified: bool = True,
        chunk_outputs: int,
        shape: EmbeddingShape | None = None,
        beside: bool = False,
    ) -> ContextBytes: ...


class _Said(NamedTuple):
    """What the library said of a plan.

    per_token  bytes of a cell
    state      bytes of the recurrent state of a sequence
    compute    bytes that the compute buffer is larger than estimated, of the whole context, of the
               one for vectors beside it, and at first
    draft      bytes that the context of a draft model or heads is larger than estimated
    """

    per_token: int
    state: int
    compute: int
    vectors: int
    first: int
    draft: int = 0


class _Beside(NamedTuple):
    """What is loaded beside the model."""

    draft: ModelConfig | None
    adapters: tuple[AdapterConfig, ...]
    named: tuple[Moved, ...]
    projector: ProjectorConfig | None
    said: _Said | None = None


def plan_memory(
    config: ModelConfig,
    settings: Settings,
    memory: Memory,
    draft: ModelConfig | None = None,
    adapters: Iterable[AdapterConfig] = (),
    projector: ProjectorConfig | None = None,
    asking: Callable[[], AbstractContextManager[AskBuffers]] | None = None,
) -> MemoryPlan:
    """The plan for this model. Raises UsageError or DoesNotFitError.

    asking: opens what is asked, if an error of the estimate could decide whether the plan fits, or
    if the architecture is newer than the worker
    """
    adapters = tuple(adapters)
    plan = estimate(config, settings, memory, draft, adapters, projector)
    is_tight = not plan.fits or plan.total_bytes > _TIGHT * plan.available_bytes
    if asking is not None and (is_tight or plan.newer) and not memory.devices:
        with asking() as ask:
            plan = estimate(config, settings, memory, draft, adapters, projector, ask)
    check_fit(plan, config)
    return plan


def estimate(
    config: ModelConfig,
    settings: Settings,
    memory: Memory,
    draft: ModelConfig | None = None,
    adapters: Iterable[AdapterConfig] = (),
    projector: ProjectorConfig | None = None,
    ask: AskBuffers | None = None,
) -> MemoryPlan:
    """The plan, whether it fits or not.

    draft: the model that guesses tokens, or None
    adapters, projector: of the model
    ask: of the model, and of what guesses, on the CPU; beside GPUs it is not asked

    What the settings leave open is chosen in this order:

    sequences  the default, fewer where not even MIN_CELLS fit
    layers     as many on GPUs as leave room for OFFLOADING_CELLS; of a mixture of experts, first
               without the experts of some
    context    `config.context` for each sequence, at most DEFAULT_CELLS, at most DEFAULT_SHARE of
               the memory that the weights leave, at least MIN_CELLS
    cache      a share of the host's memory that all this leaves (`saved_states.py`)

    A cache that was asked for is taken from the memory before the context is chosen. It never
    costs sequences or layers.

    Raises UsageError for cache types that this model cannot have.
    """
    check_cache_types(config, settings)
    beside = _Beside(draft, tuple(adapters), named_tensors(config, settings), projector)
    plan = _fit(config, settings, memory, beside)
    for _ in range(_ROUNDS if ask is not None and not memory.devices else 0):
        assert ask is not None
        sizes = plan.num_cells, plan.num_slots
        beside = beside._replace(said=_ask_sizes(config, settings, plan, ask, draft))
        plan = _fit(config, settings, memory, beside)
        if (plan.num_cells, plan.num_slots) == sizes:
            break
    return plan


def _ask_sizes(
    config: ModelConfig,
    settings: Settings,
    plan: MemoryPlan,
    ask: AskBuffers,
    draft: ModelConfig | None,
) -> _Said:
    """What the library says of a plan's sizes."""
    slots, cells = plan.num_slots, min(plan.num_cells, _ASKED_CELLS)
    settings = msgspec.structs.replace(settings, parallel=slots)
    shape, vectors = embedding_shape(config, settings, cells), 0
    per_token = kv_bytes_per_token(config, settings)
    if shape is not None:
        found = ask(settings, cells, chunk_outputs=shape.rows, shape=shape)
        estimated = embedding_bytes(config, settings, shape)
        vectors = found.compute - compute_bytes(estimated.step)
        if config.only_embeds:
            state = _bytes_each(found.recurrent, shape.inputs, state_bytes(config))
            cells = shape.cells if shape.has_cells else 0
            return _Said(_bytes_each(found.kv, cells, per_token), state, vectors, 0, vectors)
    whole = ask(settings, cells, chunk_outputs=CHUNK_OUTPUTS)
    pieces = msgspec.structs.replace(settings, ubatch_size=min(settings.ubatch_size, PIECE_ROWS))
    first = ask(pieces, cells, unified=False, chunk_outputs=0)
    own = _own(cells, slots)
    more = outputs = 0
    if draft is None and settings.uses_heads:
        draft, outputs = heads_model(config), HEAD_LENGTH * slots
    elif draft is not None and reads_states(draft):
        outputs = eagle_outputs(slots) - slots
    if draft is not None:
        found = ask(settings, cells, chunk_outputs=outputs, beside=True)
        more = found.kv + found.compute - context_bytes(draft, settings, cells)
    return _Said(
        _bytes_each(whole.kv, cells, per_token),
        _bytes_each(whole.recurrent, slots, _states(config, settings)),
        whole.compute - compute_bytes(step_bytes(config, settings, cells)),
        vectors,
        first.compute - used_bytes(config, settings, cells, seen_cells=own),
        more,
    )


def _bytes_each(nbytes: int, count: int, estimated: int) -> int:
    """Bytes for each of `count`: what is estimated, if that is the same but for rounding."""
    return estimated if abs(nbytes - count * estimated) <= _ROUNDING else nbytes // count


def _states(config: ModelConfig, settings: Settings) -> int:
    """Bytes of the recurrent states of a sequence."""
    return (1 + num_states_kept(config, settings)) * state_bytes(config)


def _own(num_cells: int, slots: int) -> int:
    """Cells of each slot while it has its own."""
    return num_cells // slots // CELL_STEP * CELL_STEP or num_cells


def _fit(config: ModelConfig, settings: Settings, memory: Memory, beside: _Beside) -> MemoryPlan:
    slots, layers, experts = _fit_slots_and_layers(config, settings, memory, beside)
    settings = msgspec.structs.replace(settings, parallel=slots, cpu_moe=experts)
    if settings.ctx_size is not None:
        num_cells = settings.ctx_size
    else:
        fitting = _longest(config, settings, memory, beside, layers, DEFAULT_SHARE)
        num_cells = max(MIN_CELLS, min(_default_cells(config, settings), fitting))
    plan = _sum(config, settings, memory, beside, whole_cells(num_cells), layers)
    return msgspec.structs.replace(
        plan,
        max_cells=_longest(config, settings, memory, beside, layers, 1),
        max_slots=slots if plan.fits else _most_slots(config, settings, memory, beside, plan),
    )


def media_bytes(config: ModelConfig, settings: Settings, num_cells: int) -> int:
    """Pictures and sounds on the host: vectors that are kept and that requests hold, the largest
    body, and its text."""
    held = MEDIA_LENT.most * num_cells * 4 * config.embedding
    return held + (MEDIA_KEPT.most + 2 * settings.max_media_body) * MIB


def whole_cells(num_cells: int) -> int:
    """So many cells, or as many more as llama.cpp makes of them."""
    return -(-num_cells // CELL_STEP) * CELL_STEP


def check_fit(plan: MemoryPlan, config: ModelConfig) -> None:
    """Raise DoesNotFitError unless the plan fits."""
    if plan.fits:
        return
    name = f"{config.name or config.architecture} with a context of {plan.num_cells} cells"
    if plan.max_cache_bytes:
        asked, left = human_bytes(plan.cache_bytes), human_bytes(plan.max_cache_bytes)
        raise DoesNotFitError(
            f"{name} leaves {left} of host memory, and --cache-ram asks for {asked}.",
            hint=f"Start with --cache-ram {plan.max_cache_bytes // MIB} or less.",
        )
    need, have = human_bytes(plan.total_bytes), human_bytes(plan.available_bytes)
    if plan.max_cells >= MIN_CELLS:
        hint = f"Start with --ctx-size {plan.max_cells} or less."
    elif plan.max_slots:
        hint = f"Start with --parallel {plan.max_slots} or less."
    elif plan.cache_bytes:  # it was asked for: nothing is left that could be fitted
        hint = "No context fits beside the cache: start with a smaller --cache-ram."
    else:
        hint = "No context fits: take a smaller quant level, or free memory."
    raise DoesNotFitError(f"{name} needs {need}, {have} are available.", hint=hint)


def check_room(plan: MemoryPlan, memory: Memory) -> None:
    """Raise DoesNotFitError where what a running process loads of the plan does not fit now."""
    loaded = [placed for placed in plan.devices if placed.part not in ("process", "projector")]
    for need, room in zip(_needs(loaded, memory), _rooms(memory), strict=True):
        if need > room:
            need, room = human_bytes(need), human_bytes(room)
            raise DoesNotFitError(f"It needs {need}, and {room} are available.")


def _default_cells(config: ModelConfig, settings: Settings) -> int:
    if config.only_embeds:
        return longest_text(config)
    return min(config.context * settings.slots or DEFAULT_CELLS, DEFAULT_CELLS)


def _fit_slots_and_layers(
    config: ModelConfig, settings: Settings, memory: Memory, beside: _Beside
) -> tuple[int, int, int]:
    """The most sequences that leave room for a useful context, and the most layers on GPUs with
    so many sequences, with the fewest whose experts stay on the CPU."""
    slots = layers = experts = 0
    for slots in [settings.parallel] if settings.parallel else range(settings.slots, 0, -1):
        given = msgspec.structs.replace(settings, parallel=slots, cache_ram=None)
        for layers, experts in layers_to_try(config, settings, memory):
            given = msgspec.structs.replace(given, cpu_moe=experts)
            useful = min(_default_cells(config, given), OFFLOADING_CELLS) if layers else MIN_CELLS
            cells = whole_cells(settings.ctx_size or useful)
            if _sum(config, given, memory, beside, cells, layers).fits:
                return slots, layers, experts
    return slots, layers, experts


def _most_slots(
    config: ModelConfig,
    settings: Settings,
    memory: Memory,
    beside: _Beside,
    plan: MemoryPlan,
) -> int:
    """The most sequences, fewer than the plan has, that fit with its context; 0: none fit."""
    for slots in range(plan.num_slots - 1, 0, -1):
        fewer = msgspec.structs.replace(settings, parallel=slots)
        if _sum(config, fewer, memory, beside, plan.num_cells, plan.gpu_layers).fits:
            return slots
    return 0


def _sum(
    config: ModelConfig,
    settings: Settings,
    memory: Memory,
    beside: _Beside,
    num_cells: int,
    gpu_layers: int,
) -> MemoryPlan:
    said, slots = beside.said, settings.slots
    per_token = said.per_token if said else kv_bytes_per_token(config, settings)
    step = step_bytes(config, settings, num_cells)
    parts: dict[Part, int] = {
        "weights": weights_bytes(config, memory.packed),
        "kv": num_cells * per_token,
        "recurrent": slots * (said.state if said else _states(config, settings)),
        "compute": compute_bytes(step) + (said.compute if said else 0),
        "output": output_bytes(config, settings, num_cells),
        "copies": copy_bytes(config, settings, num_cells),
        "process": process_bytes(config) + _BUSY_BYTES,
    }
    if beside.draft is not None:
        draft, packed = beside.draft, memory.packed
        if reads_states(draft):
            parts["draft"] = eagle_bytes(draft, config, settings, num_cells, packed)
        else:
            parts["draft"] = draft_bytes(draft, settings, num_cells, packed)
    elif settings.uses_heads:
        parts["draft"] = heads_bytes(config, settings, num_cells)
    if said and "draft" in parts:
        parts["draft"] += said.draft
    if beside.projector is not None:  # in a process that reads the vocabulary too
        parts["projector"] = beside.projector.size_bytes + beside.projector.compute_bytes
        parts["process"] = 2 * parts["process"] + media_bytes(config, settings, num_cells)
    taken = adapters_bytes(beside.adapters) + room_bytes(settings)
    if settings.control_vector:
        taken += 4 * config.layers * config.embedding
    if taken:
        parts["adapters"] = taken
    if (shape := embedding_shape(config, settings, num_cells)) is not None:
        taken = embedding_bytes(config, settings, shape)
        if config.only_embeds:  # there is no other context
            step, per_token = taken.step, per_token if shape.has_cells else 0
            parts |= {
                "kv": per_token * shape.cells,
                "recurrent": said.state * shape.inputs if said else taken.recurrent,
                "compute": compute_bytes(step) + (said.compute if said else 0),
                "output": taken.output,
                "copies": 0,
            }
        else:
            parts["embedding"] = taken.total + (said.vectors if said else 0)
    moved = moved_tensors(config, beside.named, settings.cpu_moe or 0)
    devices = place(config, settings, memory.devices, parts, step, gpu_layers, moved)
    sums = {part: sum(p.nbytes for p in devices if p.part == part) for part in parts}
    total = sum(sums.values())
    parts["process"] -= _BUSY_BYTES * (1 + (beside.projector is not None))
    if not config.only_embeds:
        own = _own(num_cells, slots)
        step = step_bytes(config, settings, num_cells, seen_cells=own)
        used = used_bytes(config, settings, num_cells, seen_cells=own)
        parts |= {
            "compute": compute_bytes(step) if gpu_layers else used + (said.first if said else 0),
            "kv": min(num_cells, own * slots) * per_token,
            "output": 4 * config.vocab_size * slots,
            "copies": 0,
        }
    elif shape is not None and config.kind == "encoder":
        # llama.cpp fills room for logits that nothing computes with zeros, for each row of a step.
        rows = min(PIECE_ROWS, shape.rows) + shape.short_rows
        parts["output"] = 4 * rows * (config.vocab_size + config.vectors.width)
    there = place(config, settings, memory.devices, parts, step, gpu_layers, moved)
    first = min(total, sum(placed.nbytes for placed in there))
    needs, rooms = _needs(devices, memory), _rooms(memory)
    holds = all(need <= room for need, room in zip(needs, rooms, strict=True))
    spare = rooms[0] - needs[0]
    cache = 0 if config.only_embeds else memory_limit(settings, spare)
    return MemoryPlan(
        num_cells=num_cells,
        num_slots=slots,
        weights_bytes=sums["weights"],
        kv_bytes=sums["kv"],
        recurrent_bytes=sums["recurrent"],
        compute_bytes=sums["compute"],
        output_bytes=sums["output"],
        copy_bytes=sums["copies"],
        process_bytes=sums["process"],
        draft_bytes=sums.get("draft", 0),
        adapter_bytes=sums.get("adapters", 0),
        embedding_bytes=sums.get("embedding", 0),
        projector_bytes=sums.get("projector", 0),
        total_bytes=total,
        first_bytes=first,
        available_bytes=sum(rooms),
        gpu_layers=gpu_layers,
        cpu_experts=settings.cpu_moe or 0,
        max_cells=0,
        max_slots=0,
        cache_bytes=cache,
        max_cache_bytes=spare // MIB * MIB if holds else 0,
        kv_bytes_per_token=per_token,
        fits=holds and cache <= spare,
        devices=devices,
        is_asked=said is not None,
        estimated=tuple(part for part in _ESTIMATED[3 * bool(said) :] if part in parts),
        newer=doubt(config.architecture),
    )


def process_bytes(config: ModelConfig) -> int:
    """Bytes of the process without what the model's size decides, once it has served a little."""
    merges = config.tokenizer.merges if config.tokenizer else 0
    process = _ENCODER_BYTES if config.kind == "encoder" else _PROCESS_BYTES
    return process + config.vocab_size * _TOKEN_BYTES + merges * _MERGE_BYTES


def _needs(devices: Iterable[Placement], memory: Memory) -> list[int]:
    """Bytes that are needed of the host's memory, and of each GPU's own memory."""
    names = [device.name for device in memory.devices if not device.unified]
    sums = dict.fromkeys([HOST, *names], 0)
    for placed in devices:
        sums[placed.device if placed.device in sums else HOST] += placed.nbytes
    return list(sums.values())


def _rooms(memory: Memory) -> list[int]:
    """Bytes that are available of each."""
    return [memory.available, *(d.available for d in memory.devices if not d.unified)]


def _longest(
    config: ModelConfig,
    settings: Settings,
    memory: Memory,
    beside: _Beside,
    gpu_layers: int,
    share: float,
) -> int:
    """The longest context, a multiple of CELL_STEP, that takes at most `share` of the memory that
    the model, and a cache that was asked for, leave; 0: none fits."""
    cache = (settings.cache_ram or 0) * MIB

    def needs(cells: int) -> list[int]:
        plan = _sum(config, settings, memory, beside, cells, gpu_layers)
        host, *others = _needs(plan.devices, memory)
        return [host + cache, *others]

    limits = [
        bare + share * (room - bare) for bare, room in zip(needs(0), _rooms(memory), strict=True)
    ]

    def too_many(step: int) -> bool:
        return any(n > limit for n, limit in zip(needs(step * CELL_STEP), limits, strict=True))

    return CELL_STEP * bisect.bisect_left(range(1, MAX_CELLS // CELL_STEP + 1), True, key=too_many)
