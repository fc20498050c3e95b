"""From what was prepared to a model that decodes: a context over the weights, warmed up."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from worker import log, machine
from worker.engine.backend import Kernels
from worker.lifecycle.buffers import context_options, text_purpose, vectors_options
from worker.lifecycle.devices import Devices
from worker.lifecycle.prepared import Prepared, draft_options, load_weights, note_native
from worker.llama import library
from worker.llama.backend import LlamaBackend
from worker.llama.calibrate import AttentionShape, calibration
from worker.llama.companion import (
    Assistant,
    Companion,
    DraftModel,
    Heads,
    StateReader,
    open_layer_reader,
)
from worker.llama.context import PLAIN_ROWS, ContextOptions
from worker.llama.guides.guides import Guides
from worker.llama.process import openmp
from worker.llama.process.memory import stay_small
from worker.llama.residency import kernels_of, placements
from worker.llama.weights import Weights
from worker.memory.cells import CACHE_ENCODINGS, cell_widths, is_fused
from worker.memory.contexts import CELL_STEP, CHUNK_OUTPUTS
from worker.memory.embedding import EmbeddingShape, embedding_shape
from worker.memory.offload import HOST
from worker.memory.plan import MemoryPlan
from worker.model.config import ModelConfig
from worker.model.drafts import reads_cells, reads_states, states_read
from worker.settings import Settings

_THREAD_BYTES = 16 << 20


class Native(NamedTuple):
    """What native code holds of a model.

    draft  guesses tokens: a draft model, or the model's own heads
    """

    backend: LlamaBackend
    draft: Companion | None

    def close(self) -> None:
        """Free it; safe to call again."""
        if self.draft is not None:  # heads are a part of the model
            self.draft.close()
        self.backend.close()


def load_backend(
    path: Path, settings: Settings, prepared: Prepared, *, chunk_outputs: int = CHUNK_OUTPUTS
) -> LlamaBackend:
    """Both steps in one: `load_weights` and `open_backend`."""
    weights = load_weights(path, settings, prepared)
    return open_backend(weights, settings, prepared, chunk_outputs=chunk_outputs)


def open_backend(
    weights: Weights,
    settings: Settings,
    prepared: Prepared,
    *,
    chunk_outputs: int = CHUNK_OUTPUTS,
    guides: Guides | None = None,
) -> LlamaBackend:
    """A context over loaded weights, which it closes with itself; checked and warmed up.

    chunk_outputs: rows of a prompt that can have their logits in one batch
    guides: of the same file, when it was in memory before
    """
    stay_small()
    library.proof().verdict().require()  # before anything is computed
    path = Path(prepared.config.path)
    note_native(f"it computed with {path.name}", path, prepared.config)
    threads = _threads(settings.threads or usual_threads(prepared.config))
    plan = prepared.plan
    config = prepared.config
    options = msgspec.structs.replace(
        context_options(settings, plan.num_cells),
        num_slots=slots_for(plan, kernels_of(weights.residency)),
        chunk_outputs=chunk_outputs,
        threads=threads,
        threads_batch=_threads(settings.threads_batch or threads),
        plain_rows=PLAIN_ROWS if _takes_plain(settings, prepared) else 0,
        plain_bytes=plan.compute_bytes,
        purpose=text_purpose(prepared.draft, heads=prepared.uses_heads),
        layers_read=states_read(prepared.draft),
        states_kept=plan.states_kept,
        control=prepared.control,
    )
    shape = embedding_shape(config, settings, plan.num_cells)
    own = options if shape is None else vectors_options(options, shape)
    backend = LlamaBackend(
        weights,
        own if config.only_embeds else options,
        embeds=shape if config.only_embeds else None,
        guides=guides,
    )
    try:
        if shape is not None and backend.embedder is None:
            backend.open_embedder(shape, own)
        backend.warm_up()
        if (told := config.tokenizer) is not None:
            vocab = backend.vocab
            vocab.remember(vocab.bos, vocab.eos, told.pad_id, told.unk_id)
        _tell_of_slow_cache(backend, settings)
        if shape is not None:
            _tell_of_scores(config, shape)
    except BaseException:
        backend.close()
        raise
    return backend


def usual_threads(config: ModelConfig) -> int:
    """One compute thread for each 16 MiB of weights, at most one for each CPU.

    Those of a small model mostly wait for each other: several are slower than one.
    """
    return max(1, min(machine.usable_cpus(), config.size_bytes // _THREAD_BYTES))


def _threads(wanted: int) -> int:
    """So many compute threads, or as many as OpenMP grants."""
    threads = openmp.granted_threads(wanted)
    if threads < wanted:
        log.get("load").warning(
            "OpenMP grants fewer compute threads than are wanted",
            wanted=wanted,
            granted=threads,
            variables=openmp.variables(),
            hint="unset what forbids them, or ask for fewer with --threads",
        )
    return threads


def may_be_plain(config: ModelConfig, settings: Settings) -> bool:
    """Whether attention may be plain: unless the user has chosen, where a quantised cache needs
    fused attention, and in models that are more than layers of one kind which look at all cells."""
    types = (settings.cache_type_k, settings.cache_type_v)
    is_open = settings.flash_attn == "auto" and is_fused(config, "auto")
    is_simple = not (config.recurrent or config.sliding_window or config.key_length_mla)
    return (
        is_open
        and is_simple
        and not (config.only_embeds or settings.uses_heads)
        and not any(CACHE_ENCODINGS[name].quantized for name in types)
        and len(set(cell_widths(config))) == 1
    )


def _takes_plain(settings: Settings, prepared: Prepared) -> bool:
    """Whether plain attention takes less time; not measured on a GPU. Rows of a picture that look
    at each other want a whole step, which plain attention has no room for."""
    if prepared.devices.chosen or prepared.uses_heads or prepared.projector is not None:
        return False
    if not may_be_plain(prepared.config, settings):
        return False
    found = calibration(attention_shape(prepared.config, settings))
    return found is not None and found.attention == "plain"


def attention_shape(config: ModelConfig, settings: Settings) -> AttentionShape:
    """What is calibrated for a model of which all layers are alike."""
    return AttentionShape(
        heads=config.max_heads,
        kv_heads=config.max_kv_heads,
        key_length=config.key_length,
        value_length=config.value_length,
        cells=(settings.cache_type_k, settings.cache_type_v),
    )


def _tell_of_slow_cache(backend: LlamaBackend, settings: Settings) -> None:
    """Log what a quantised cache costs on a CPU, which the memory that it saves does not show.

    After 4,096 tokens a 125M shape reads 39 tokens a second from q8_0 and 114 from f16, a Llama-1B
    9.5 and 26 (one thread); with two threads 19 and 74.
    """
    types = {settings.cache_type_k, settings.cache_type_v}
    on_cpu = any(device == "CPU" for _, device in backend.context.residency.layers)
    if on_cpu and any(CACHE_ENCODINGS[name].quantized for name in types):
        log.get("load").warning(
            "a quantized KV cache on a CPU: after 4,096 tokens prompts are 3 to 4 times slower",
            cache_type_k=settings.cache_type_k,
            cache_type_v=settings.cache_type_v,
            hint="use f16 if it fits; `worker bench MODEL` measures it on this machine",
        )


def _tell_of_scores(config: ModelConfig, shape: EmbeddingShape) -> None:
    """Log why a reranker's scores are not what its model was trained for."""
    if not config.vectors.classifies:
        return
    if shape.pooling != "rank":
        log.get("load").warning(
            "a reranker that makes embeddings: /v1/rerank refuses",
            pooling=shape.pooling,
            hint="start it with --pooling rank to have scores",
        )
    elif config.vectors.flaw is not None:
        log.get("load").warning("scores are off", reason=config.vectors.flaw)


def open_draft(
    settings: Settings, prepared: Prepared, backend: LlamaBackend
) -> DraftModel | StateReader | Assistant | None:
    """Load what guesses tokens, if there is something, with a context beside the backend's.

    Heads are where their layers are. Raises what `open_backend` raises.
    """
    if prepared.uses_heads:
        draft = Heads(backend)
        if not backend.shape.takes_back:
            log.get("load").warning(
                "MTP heads are loaded and inactive: this build of llama.cpp cannot "
                "reject a draft token in such a model"
            )
    elif prepared.draft is not None:
        draft = _open_model(prepared.draft, settings, prepared, backend)
    else:
        return None
    try:
        draft.warm_up()
    except BaseException:
        draft.close()
        raise
    return draft


def _open_model(
    config: ModelConfig, settings: Settings, prepared: Prepared, backend: LlamaBackend
) -> DraftModel | StateReader | Assistant:
    plan = prepared.plan
    load = draft_options(config, settings, prepared.devices, plan.gpu_layers)
    options = ContextOptions(
        num_cells=plan.num_cells,
        num_slots=backend.shape.num_slots,
        batch_size=settings.batch_size,
        ubatch_size=settings.ubatch_size,
        threads=backend.context.threads,
        threads_batch=backend.context.threads_batch,
        cache_type_k=settings.cache_type_k,
        cache_type_v=settings.cache_type_v,
        flash_attn=settings.flash_attn,
    )
    if reads_cells(config):
        return Assistant(config, load, backend)
    if reads_states(config):
        return open_layer_reader(config, load, options, backend)
    return DraftModel(Path(config.path), load, options)


def slots_for(plan: MemoryPlan, kernels: Kernels) -> int:
    """Slots for the plan's sequences: a whole block of them, if a stream gets no shorter by it.

    So a step of 15 rows can be filled up to 16, where that is faster. Not
    where a slot has a recurrent state: that is large, and such steps are not filled.
    """
    slots = plan.num_slots
    if plan.recurrent_bytes:
        return slots
    whole = slots + kernels.num_padding(slots)
    steps = plan.num_cells // CELL_STEP
    return whole if slots > 1 and steps // whole == steps // slots else slots


def gpu_bytes(devices: Devices, native: Native) -> int:
    """Bytes of GPU memory that loading took, measured; 0 where the CPU's memory holds the model.

    devices: with what was free on them before the load
    """
    if devices.is_unified:
        return 0
    now = {device.name: device.memory_free for device in library.devices()}
    taken = (d.memory_free - now.get(d.name, d.memory_free) for d in devices.chosen)
    # A CPU behind an RPC server does not tell what is free: there llama.cpp's word counts.
    backend, draft = native
    places = placements(
        backend.weights.residency, backend.context.residency, draft.buffers if draft else ()
    )
    told = (place.nbytes for place in places if place.device != HOST)
    return max(sum(taken), sum(told))
