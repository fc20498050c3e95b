"""A model whose computation is observed, with its weights in memory that can be written."""

from __future__ import annotations

from pathlib import Path

import msgspec

from worker import machine
from worker.lifecycle.buffers import context_options, vectors_options
from worker.lifecycle.prepared import load_weights, prepare
from worker.llama import library
from worker.llama.backend import LlamaBackend
from worker.llama.graph import Callback
from worker.memory.embedding import embedding_shape
from worker.settings import Settings


def open_observed(
    path: Path, settings: Settings, length: int, rows: int, observer: Callback
) -> LlamaBackend:
    """One sequence of `length` tokens, in batches of `rows`, whose outputs can all be asked for.

    Raises WorkerError; DoesNotFitError before anything loads.
    """
    settings = msgspec.structs.replace(
        settings, parallel=1, ctx_size=length, draft="none", mmap=False, ubatch_size=rows,
        batch_size=rows,
    )  # fmt: skip
    prepared = prepare(path, settings, sees=False)
    library.proof().verdict().require()
    threads = settings.threads or machine.usable_cpus()
    options = msgspec.structs.replace(
        context_options(settings, prepared.plan.num_cells),
        num_slots=1,
        chunk_outputs=rows,
        threads=threads,
        threads_batch=settings.threads_batch or threads,
    )
    shape = None
    if prepared.config.only_embeds:
        shape = embedding_shape(prepared.config, settings, prepared.plan.num_cells)
        assert shape is not None
        options = vectors_options(options, msgspec.structs.replace(shape, inputs=1, rows=rows))
    weights = load_weights(path, settings, prepared)
    return LlamaBackend(weights, options, embeds=shape, observer=observer)
