"""ModelConfig + Settings -> MemoryPlan: what a worker will hold, and the context that fits.

The plan counts what llama.cpp allocates and what the process itself needs. What contexts take the
library says if it can be asked; else the estimate of `estimate.py` does.
`benchmarks/memory_plan.py` compares the plan with what llama.cpp reports and with the resident
memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from worker.errors import DoesNotFitError, WorkerError
from worker.limits import MEDIA_KEPT, MEDIA_LENT
from worker.machine import Memory, human_bytes
from worker.memory.cells import check_cache_types
from worker.memory.companions import (
    HEAD_LENGTH,
    LENDER_CELLS,
    adapters_bytes,
    assistant_bytes,
    block_rows,
    dflash_bytes,
    draft_bytes,
    eagle_bytes,
    eagle_outputs,
    heads_bytes,
    num_states_kept,
    room_bytes,
)
from worker.memory.contexts import (
    CELL_STEP,
    CHUNK_OUTPUTS,
    PIECE_ROWS,
    AskBuffers,
    AskPlaces,
    Wanted,
    cell_bytes,
    num_ends,
    own_cells,
    remember,
    vector_bytes,
    vector_contexts,
    whole_cells,
)
from worker.memory.embedding import embedding_shape, longest_text, output_bytes
from worker.memory.estimate import estimator, step_bytes
from worker.memory.offload import (
    HOST,
    Beside,
    Moved,
    Part,
    Placement,
    last_device,
    layers_to_try,
    moved_tensors,
    named_tensors,
    place,
    storage_beside,
)
from worker.memory.saved_states import MIB, copy_bytes, memory_limit
from worker.memory.weights import weights_bytes
from worker.model.adapter import AdapterConfig
from worker.model.architectures import doubt
from worker.model.config import ModelConfig
from worker.model.drafts import borrows, reads_cells, reads_states
from worker.model.projector import ProjectorConfig
from worker.settings import Settings

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
# An estimate that takes no more of the memory has decided nothing.
_AMPLE = 0.5
# Contexts that are asked of llama.cpp as the plan has them, until its word changes no choice.
_ROUNDS = 3
# Parts that are estimated: in any case; beside GPUs, where the CPU's buffers are no answer; unless
# llama.cpp is asked.
_ALWAYS: tuple[Part, ...] = ("projector",)
_BESIDE_GPUS: tuple[Part, ...] = ("compute", "draft", "embedding", *_ALWAYS)
_UNASKED: tuple[Part, ...] = ("kv", "recurrent", *_BESIDE_GPUS)


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
    states_kept         states of a recurrent model before the last one that each sequence keeps, to
                        drop wrong guesses
    is_asked            llama.cpp said what contexts take on the CPU; else it is estimated
    estimated           parts that are estimated
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
    states_kept: int = 0
    is_asked: bool = False
    estimated: tuple[Part, ...] = ()
    newer: str | None = None

    @property
    def choices(self) -> tuple[int, ...]:
        """What llama.cpp gets of it: cells, sequences, layers on GPUs, those whose experts stay on
        the CPU, states kept."""
        experts, kept = self.cpu_experts, self.states_kept
        return self.num_cells, self.num_slots, self.gpu_layers, experts, kept


class _Case(NamedTuple):
    """A model, and what is loaded beside it. lends: its embeddings, to the drafter; more: what
    compute buffers of a part take on a device beyond the estimate"""

    config: ModelConfig
    memory: Memory
    draft: ModelConfig | None
    adapters: tuple[AdapterConfig, ...]
    named: tuple[Moved, ...]
    projector: ProjectorConfig | None
    ask: AskBuffers
    is_asked: bool
    lends: bool
    more: Mapping[tuple[str, Part], int] = {}


class _Parts(NamedTuple):
    """Bytes of each part on the host alone, of a cell, and the number of states kept; the model's
    own contexts, and what is beside them."""

    nbytes: dict[Part, int]
    cell: int
    kept: int
    contexts: tuple[Wanted, ...]
    beside: tuple[Beside, ...]


def plan_memory(
    config: ModelConfig,
    settings: Settings,
    memory: Memory,
    draft: ModelConfig | None = None,
    adapters: Iterable[AdapterConfig] = (),
    projector: ProjectorConfig | None = None,
    ask: AskBuffers | None = None,
    places: AskPlaces | None = None,
) -> MemoryPlan:
    """What `estimate` returns. Raises UsageError, DoesNotFitError unless it fits."""
    plan = estimate(config, settings, memory, draft, adapters, projector, ask, places)
    check_fit(plan, config)
    return plan


def is_ample(plan: MemoryPlan, memory: Memory) -> bool:
    """Whether there is so much memory that no error of an estimate has decided anything."""
    pairs = zip(_needs(plan.devices, memory), _rooms(memory), strict=True)
    has_gpu_layers = bool(plan.gpu_layers) or not memory.devices
    return plan.fits and has_gpu_layers and all(need <= _AMPLE * room for need, room in pairs)


def estimate(
    config: ModelConfig,
    settings: Settings,
    memory: Memory,
    draft: ModelConfig | None = None,
    adapters: Iterable[AdapterConfig] = (),
    projector: ProjectorConfig | None = None,
    ask: AskBuffers | None = None,
    places: AskPlaces | None = None,
) -> MemoryPlan:
    """The plan, whether it fits or not.

    draft: the model that guesses tokens, or None
    adapters, projector: of the model
    ask: of the model, and of what guesses, on the CPU; None: they are estimated
    places: of the same on GPUs

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
    named, asked = named_tensors(config, settings), remember(ask or estimator(config, draft))
    case = _Case(
        config,
        memory,
        draft,
        tuple(adapters),
        named,
        projector,
        asked,
        is_asked=ask is not None,
        lends=draft is not None and borrows(draft),
    )
    plan = _choose(case, settings)
    if places is None:
        return plan
    for _ in range(_ROUNDS):
        try:
            case = case._replace(more=_ask_devices(case, settings, plan, places))
        except WorkerError:
            break  # they stay estimated
        known, plan = plan, _choose(case, settings)
        if plan.choices == known.choices:
            left = tuple(part for part in plan.estimated if part in _ALWAYS)
            return msgspec.structs.replace(plan, estimated=left)
    return plan


def _choose(case: _Case, settings: Settings) -> MemoryPlan:
    config = case.config
    slots, layers, experts = _fit_slots_and_layers(case, settings)
    settings = msgspec.structs.replace(settings, parallel=slots, cpu_moe=experts)
    num_cells = settings.ctx_size
    if num_cells is None:
        num_cells = _default_cells(config, settings)
        if not _fits(case, settings, num_cells, layers, DEFAULT_SHARE):
            fitting = _longest(case, settings, layers, DEFAULT_SHARE)
            num_cells = max(MIN_CELLS, min(num_cells, fitting))
    plan = _plan(case, settings, whole_cells(num_cells), layers)
    return msgspec.structs.replace(
        plan,
        max_cells=_longest(case, settings, layers, 1),
        max_slots=slots if plan.fits else _most_slots(case, settings, plan),
    )


def _ask_devices(
    case: _Case, settings: Settings, plan: MemoryPlan, places: AskPlaces
) -> dict[tuple[str, Part], int]:
    """See `_Case.more`: of this plan, by llama.cpp's word."""
    settings = msgspec.structs.replace(settings, parallel=plan.num_slots, cpu_moe=plan.cpu_experts)
    most = _most_parts(case, settings, plan.num_cells)
    told = Counter[tuple[str, Part]]()
    every: Sequence[tuple[Part, tuple[Wanted, ...]]] = [
        ("compute", most.contexts),
        *((each.part, each.contexts) for each in most.beside),
    ]
    for part, contexts in every:  # beside layers on GPUs there is no context for short texts
        for wanted in contexts[:1] if plan.gpu_layers else contexts:
            for device, nbytes in places(wanted, plan.gpu_layers).items():
                told[device, part] += nbytes
    bare = case._replace(more={})
    for placed in _place(bare, settings, plan.num_cells, most, plan.gpu_layers):
        if placed.part == "compute":
            told[placed.device, "compute"] -= placed.nbytes
    for each in most.beside:
        last = last_device(case.config, settings, case.memory.devices, each, plan.gpu_layers)
        told[last, each.part] -= each.taken.compute
    return dict(told)


def media_bytes(config: ModelConfig, settings: Settings, num_cells: int) -> int:
    """Pictures and sounds on the host: vectors that are kept and that requests hold, the largest
    body, and its text."""
    held = MEDIA_LENT.most * num_cells * 4 * config.embedding
    return held + (MEDIA_KEPT.most + 2 * settings.max_media_body) * MIB


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


def _fit_slots_and_layers(case: _Case, settings: Settings) -> tuple[int, int, int]:
    """The most sequences that leave room for a useful context, and the most layers on GPUs with
    so many sequences, with the fewest whose experts stay on the CPU."""
    slots = layers = experts = 0
    for slots in [settings.parallel] if settings.parallel else range(settings.slots, 0, -1):
        given = msgspec.structs.replace(settings, parallel=slots, cache_ram=None)
        for layers, experts in layers_to_try(case.config, settings, case.memory):
            given = msgspec.structs.replace(given, cpu_moe=experts)
            default = _default_cells(case.config, given)
            useful = min(default, OFFLOADING_CELLS) if layers else MIN_CELLS
            if _fits(case, given, settings.ctx_size or useful, layers):
                return slots, layers, experts
    return slots, layers, experts


def _fits(
    case: _Case, settings: Settings, num_cells: int, gpu_layers: int, share: float = 1
) -> bool:
    """Whether so many cells take at most this share of the memory."""
    needs = _context_needs(case, settings, whole_cells(num_cells), gpu_layers)
    host, *others = _rooms(case.memory)
    rooms = (host - (settings.cache_ram or 0) * MIB, *others)
    return all(need <= share * room for need, room in zip(needs, rooms, strict=True))


def _most_slots(case: _Case, settings: Settings, plan: MemoryPlan) -> int:
    """The most sequences, fewer than the plan has, that fit with its context; 0: none fit."""
    for slots in range(plan.num_slots - 1, 0, -1):
        fewer = msgspec.structs.replace(settings, parallel=slots)
        if _fits(case, fewer, plan.num_cells, plan.gpu_layers):
            return slots
    return 0


def _longest(case: _Case, settings: Settings, gpu_layers: int, share: float) -> int:
    """The longest context, a multiple of CELL_STEP, that takes at most `share` of the memory that
    the model, and a cache that was asked for, leave; 0: none fits.

    What contexts take is nearly linear in their cells, so the false position (in its Illinois form)
    meets the last that fits after a few questions.
    """
    bare = _context_needs(case, settings, CELL_STEP, gpu_layers)
    cache = (settings.cache_ram or 0) * MIB
    bare[0] += cache
    limits = [
        least + share * (room - least)
        for least, room in zip(bare, _rooms(case.memory), strict=True)
    ]

    def excess(steps: int) -> float:
        host, *others = _context_needs(case, settings, steps * CELL_STEP, gpu_layers)
        pairs = zip((host + cache, *others), limits, strict=True)
        return max(need - limit for need, limit in pairs)

    low, high = 1, MAX_CELLS // CELL_STEP
    under, over = excess(low), excess(high)
    if under > 0:
        return 0
    if over <= 0:
        return high * CELL_STEP
    last = 0
    while high - low > 1:
        middle = low + int((high - low) * under / (under - over))
        middle = min(max(middle, low + 1), high - 1)
        found = excess(middle)
        if found <= 0:
            low, under = middle, found
            over /= 1 + (last < 0)
            last = -1
        else:
            high, over = middle, found
            under /= 1 + (last > 0)
            last = 1
    return low * CELL_STEP


def _context_needs(case: _Case, settings: Settings, num_cells: int, gpu_layers: int) -> list[int]:
    most = _most_parts(case, settings, num_cells)
    return _needs(_place(case, settings, num_cells, most, gpu_layers), case.memory)


def _place(
    case: _Case,
    settings: Settings,
    num_cells: int,
    most: _Parts,
    gpu_layers: int,
    *,
    unified: bool = True,
) -> tuple[Placement, ...]:
    config, devices = case.config, case.memory.devices
    shape = embedding_shape(config, settings, num_cells) if config.only_embeds else None
    wanted = Wanted(settings=settings, num_cells=num_cells, unified=unified, shape=shape)
    moved = moved_tensors(config, case.named, settings.cpu_moe or 0)
    step = step_bytes(config, wanted)
    placed = place(config, settings, devices, most.nbytes, step, gpu_layers, moved)
    if not devices:
        return placed
    sums = Counter[tuple[str, Part]]()
    for each in placed:
        sums[each.device, each.part] += each.nbytes
    for each in most.beside if gpu_layers else ():
        sums[HOST, each.part] -= each.weights + sum(each.taken)
        for device, nbytes in storage_beside(config, settings, devices, each, gpu_layers).items():
            sums[device, each.part] += nbytes
        last = last_device(config, settings, devices, each, gpu_layers)
        sums[last, each.part] += each.taken.compute
    sums.update(case.more)
    return tuple(
        Placement(device, part, nbytes) for (device, part), nbytes in sums.items() if nbytes > 0
    )


def _most_parts(case: _Case, settings: Settings, num_cells: int) -> _Parts:
    """What is held when all buffers are in use, and all sequences share the cells."""
    config, ask, slots = case.config, case.ask, settings.slots
    shape, cell, kept = embedding_shape(config, settings, num_cells), 0, 0
    contexts: tuple[Wanted, ...]
    beside: list[Beside] = []
    parts: dict[Part, int] = {"weights": weights_bytes(config, case.memory.packed)}
    if config.only_embeds:  # there is no context for text
        assert shape is not None
        kv, recurrent, compute = vector_bytes(ask, settings, shape)
        cell, contexts = kv // shape.cells, vector_contexts(settings, shape)
        parts |= {"kv": kv, "recurrent": recurrent, "compute": compute}
        parts |= {"output": output_bytes(config, shape), "copies": 0}
    else:
        cell, kept = cell_bytes(ask, settings), _states_kept(case, settings)
        contexts = (Wanted(settings=settings, num_cells=num_cells, states_kept=kept),)
        found = ask(contexts[0])
        state = found.recurrent // (slots * (1 + kept))
        rows = min(num_cells, max(settings.batch_size, slots), slots + CHUNK_OUTPUTS)
        parts |= {
            "kv": num_cells * cell,
            "recurrent": found.recurrent,
            "compute": found.compute,
            "output": 4 * config.vocab_size * (rows + num_ends(config.vocab_size)),
            "copies": copy_bytes(config, num_cells, cell, state),
        }
    parts["process"] = process_bytes(config) + _BUSY_BYTES
    if case.draft is not None or settings.uses_heads:
        parts["draft"], beside = _guesser(case, settings, num_cells)
    if case.projector is not None:  # in a process that reads the vocabulary too
        parts["projector"] = case.projector.size_bytes + case.projector.compute_bytes
        parts["process"] = 2 * parts["process"] + media_bytes(config, settings, num_cells)
    taken = adapters_bytes(case.adapters) + room_bytes(settings)
    if settings.control_vector:
        taken += 4 * config.layers * config.embedding
    if taken:
        parts["adapters"] = taken
    if shape is not None and not config.only_embeds:
        found = vector_bytes(ask, settings, shape)
        parts["embedding"] = sum(found) + output_bytes(config, shape)
        beside.append(Beside("embedding", vector_contexts(settings, shape), found))
    return _Parts(parts, cell, kept, contexts, tuple(beside))


def _guesser(case: _Case, settings: Settings, num_cells: int) -> tuple[int, list[Beside]]:
    """What a draft model, a drafter that reads hidden states or MTP heads take."""
    config, draft, slots, packed = case.config, case.draft, settings.slots, case.memory.packed
    weights = 0 if draft is None else weights_bytes(draft, packed)
    outputs = HEAD_LENGTH * slots if draft is None else 0
    if draft is not None and reads_cells(draft):
        one = msgspec.structs.replace(settings, batch_size=slots, ubatch_size=slots)
        wanted = Wanted(settings=one, num_cells=num_cells, chunk_outputs=0, beside=True)
        found = case.ask(wanted)
        beside = [Beside("draft", (wanted,), found, draft, weights)]
        return assistant_bytes(draft, settings, found, packed), beside
    rows = block_rows(draft, slots) if draft is not None and draft.block_size else 0
    if rows:
        outputs = rows - slots
    elif draft is not None and reads_states(draft):
        outputs = eagle_outputs(slots) - slots
    wanted = Wanted(
        settings=msgspec.structs.replace(settings, batch_size=rows, ubatch_size=rows)
        if rows
        else settings,
        num_cells=num_cells + rows,
        chunk_outputs=outputs,
        beside=True,
    )
    found = case.ask(wanted)
    if draft is None:
        first = config.layers - config.nextn_layers
        beside = [Beside("draft", (wanted,), found, first=first)]
        return heads_bytes(config, settings, num_cells, found), beside
    beside = [Beside("draft", (wanted,), found, draft, weights)]
    if not reads_states(draft):
        return draft_bytes(draft, settings, found, packed), beside
    lender = 0
    if case.lends:
        one = msgspec.structs.replace(settings, parallel=1, batch_size=1, ubatch_size=1)
        wanted = Wanted(settings=one, num_cells=LENDER_CELLS, chunk_outputs=0)
        context = case.ask(wanted)
        lender = sum(context) + 4 * config.vocab_size
        beside.append(Beside("draft", (wanted,), context))
    if rows:
        return dflash_bytes(draft, settings, found, packed) + lender, beside
    return eagle_bytes(draft, settings, num_cells, found, packed) + lender, beside


def _states_kept(case: _Case, settings: Settings) -> int:
    if case.config.recurrent is None:
        return 0
    alone = msgspec.structs.replace(settings, parallel=1)
    state = case.ask(Wanted(settings=alone, num_cells=CELL_STEP)).recurrent
    return num_states_kept(case.config, settings, state)


def _first_parts(
    case: _Case, settings: Settings, num_cells: int, most: _Parts, gpu_layers: int
) -> _Parts:
    """What is resident in ordinary use; see `MemoryPlan.first_bytes`."""
    config, slots, parts = case.config, settings.slots, dict(most.nbytes)
    parts["process"] -= _BUSY_BYTES * (1 + (case.projector is not None))
    if not config.only_embeds:
        if not gpu_layers:
            rows = min(settings.ubatch_size, PIECE_ROWS)
            settings = msgspec.structs.replace(settings, ubatch_size=rows)
        wanted = Wanted(
            settings=settings,
            num_cells=num_cells,
            unified=False,
            chunk_outputs=0,
            states_kept=most.kept,
        )
        parts["compute"] = case.ask(wanted).compute
        parts["kv"] = min(num_cells, own_cells(num_cells, slots) * slots) * most.cell
        parts["output"], parts["copies"] = 4 * config.vocab_size * slots, 0
        return most._replace(nbytes=parts)
    shape = embedding_shape(config, settings, num_cells)
    if shape is not None and config.kind == "encoder":
        # llama.cpp fills room for logits that nothing computes with zeros, for each row of a step.
        rows = min(PIECE_ROWS, shape.rows)
        parts["output"] = output_bytes(config, msgspec.structs.replace(shape, rows=rows))
    return most._replace(nbytes=parts)


def _plan(case: _Case, settings: Settings, num_cells: int, gpu_layers: int) -> MemoryPlan:
    config, memory = case.config, case.memory
    most = _most_parts(case, settings, num_cells)
    devices = _place(case, settings, num_cells, most, gpu_layers)
    sums = {part: sum(p.nbytes for p in devices if p.part == part) for part in most.nbytes}
    total = sum(sums.values())
    first = _first_parts(case, settings, num_cells, most, gpu_layers)
    there = _place(case, settings, num_cells, first, gpu_layers, unified=config.only_embeds)
    needs, rooms = _needs(devices, memory), _rooms(memory)
    holds = all(need <= room for need, room in zip(needs, rooms, strict=True))
    spare = rooms[0] - needs[0]
    cache = 0 if config.only_embeds else memory_limit(settings, spare)
    doubtful = _UNASKED
    if case.is_asked:
        doubtful = _BESIDE_GPUS if memory.devices else _ALWAYS
    return MemoryPlan(
        num_cells=num_cells,
        num_slots=settings.slots,
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
        first_bytes=min(total, sum(placed.nbytes for placed in there)),
        available_bytes=sum(rooms),
        gpu_layers=gpu_layers,
        cpu_experts=settings.cpu_moe or 0,
        max_cells=0,
        max_slots=0,
        cache_bytes=cache,
        max_cache_bytes=spare // MIB * MIB if holds else 0,
        kv_bytes_per_token=most.cell,
        fits=holds and cache <= spare,
        devices=devices,
        states_kept=most.kept,
        is_asked=case.is_asked,
        estimated=tuple(part for part in doubtful if sums.get(part)),
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
