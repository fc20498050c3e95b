"""What managers, routers and monitors ask about the worker itself: /health, /info, /version,
/metrics."""

from __future__ import annotations

import os
import time

import msgspec

from worker.lifecycle.loaded import Loaded
from worker.lifecycle.manager import WorkerInfo, worker_info
from worker.lifecycle.worker import Worker
from worker.model.architectures import doubt


class Health(msgspec.Struct):
    """How the worker is.

    resident           the model is in memory, each layer where it was asked for
    is_sleeping        it is not, until somebody asks
    memory_bytes       what is held now, on the host and on GPUs, never the file's size
    cache_bytes        what the states of ended sequences take of it
    cache_limit_bytes  what they may take: `memory_bytes` grows by the difference at most
    """

    status: str
    model: str
    quant_kind: str
    resident: bool
    is_sleeping: bool
    memory_bytes: int
    cache_bytes: int
    cache_limit_bytes: int
    context_length: int
    vocab_size: int
    uptime_seconds: float
    slots_idle: int
    slots_processing: int
    queue_depth: int


def health_of(worker: Worker, loaded: Loaded) -> Health:
    """Read without touching the engine's thread: counters only, so it answers under any load."""
    backend, engine = loaded.backend, loaded.engine.snapshot
    return Health(
        status="stalled" if worker.is_stalled else "ok",
        model=loaded.model_id,
        quant_kind=loaded.config.quant,
        # A layer elsewhere than asked for fails the load.
        resident=not worker.is_sleeping,
        is_sleeping=worker.is_sleeping,
        memory_bytes=loaded.memory_bytes,
        cache_bytes=engine.kept.memory_bytes,
        cache_limit_bytes=engine.kept.memory_limit,
        context_length=backend.max_length,
        vocab_size=backend.vocab_size,
        uptime_seconds=round(time.monotonic() - worker.started_at, 3),
        slots_idle=engine.max_running - engine.num_running,
        slots_processing=engine.num_running,
        queue_depth=engine.num_waiting,
    )


class Info(WorkerInfo, frozen=True, kw_only=True):
    """A heartbeat's WorkerInfo, and more of what a manager may want to know.

    url           the first address that it listens on: https:// and unix: too
    model_ref     what the manager calls the model; null: it did not say
    memory_bytes  host and GPU memory that is held now, measured; vram_bytes of it on GPUs
    context_length, n_ctx_train
                  tokens of a request now, and those that the model was trained on
    slots         sequences that run at once
    threads       compute threads of a step of one row; threads_batch of several
    attention     where each sequence has cells of its own: fused or plain
    draft         who guesses tokens: auto, none, ngram, model, mtp; or both: auto and heads
    draft_model   file name of the model that does, without its suffix
    newer         what is not known of the model, for its architecture is newer than the worker, so
                  the memory plan is an estimate; null: all is
    cache_limit_bytes, cache_disk_limit_bytes
                  what the states of ended sequences may take of host memory and of the disk
    """

    url: str
    model_ref: str | None
    backend: str
    quant_kind: str
    context_length: int
    n_ctx_train: int
    vocab_size: int
    slots: int
    threads: int
    threads_batch: int
    attention: str
    queue_size: int
    memory_bytes: int
    vram_bytes: int
    cache_limit_bytes: int
    cache_disk_limit_bytes: int
    memory_architecture: str
    worker_type: str = "llm"
    capabilities: tuple[str, ...]
    draft: str
    draft_model: str | None
    newer: str | None
    max_tokens_out: int
    inference_timeout_seconds: float
    uptime_seconds: float
    pid: int


class Version(msgspec.Struct):
    """vLLM's shape."""

    version: str


class ModelReady(msgspec.Struct):
    """The Open Inference Protocol's answer about one model."""

    name: str
    ready: bool = True


def info_of(worker: Worker, loaded: Loaded) -> Info:
    """Counters and settings; the engine's thread is not waited for."""
    engine = loaded.engine.snapshot
    return Info(
        **msgspec.structs.asdict(worker_info(worker, loaded)),
        url=worker.url,
        model_ref=worker.settings.model_ref,
        backend=loaded.devices.backend,
        quant_kind=loaded.config.quant,
        context_length=loaded.backend.max_length,
        n_ctx_train=loaded.config.trained_context,
        vocab_size=loaded.backend.vocab_size,
        slots=engine.max_running,
        threads=loaded.backend.context.threads,
        threads_batch=loaded.backend.context.threads_batch,
        attention=loaded.attention,
        queue_size=worker.settings.queue_size,
        cache_limit_bytes=engine.kept.memory_limit,
        cache_disk_limit_bytes=engine.kept.disk_limit,
        memory_bytes=loaded.memory_bytes,
        vram_bytes=loaded.vram_bytes,
        memory_architecture=loaded.memory_architecture,
        capabilities=loaded.capabilities,
        draft=loaded.guesses,
        draft_model=worker.draft_id,
        newer=doubt(loaded.config.architecture),
        max_tokens_out=worker.settings.max_tokens_out,
        inference_timeout_seconds=worker.settings.inference_timeout,
        uptime_seconds=round(time.monotonic() - worker.started_at, 3),
        pid=os.getpid(),
    )
