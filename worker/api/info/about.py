"""What managers, routers and monitors ask about the worker itself: /health, /info, /version,
/metrics."""

from __future__ import annotations

import os
import time

import msgspec
from litestar import Response, get

from worker import __version__
from worker.api.answer.errors import json_response
from worker.api.info.readings import Window
from worker.api.intake.adapters import named
from worker.api.intake.body import HttpRequest
from worker.errors import NotFoundError
from worker.http import paths
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.manager import WorkerInfo, worker_info
from worker.lifecycle.worker import Worker
from worker.requests.journal import Journal


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


@get(paths.HEALTH, summary="Is the worker well")
async def health(worker: Worker, loaded: Loaded) -> Response[bytes]:
    """200 when it is, 503 when its engine hangs."""
    answer = health_of(worker, loaded)
    return json_response(answer, 200 if answer.status == "ok" else 503)


class Info(WorkerInfo, frozen=True, kw_only=True):
    """A heartbeat's WorkerInfo, and more of what a manager may want to know.

    model_ref     what the manager calls the model; null: it did not say
    memory_bytes  host and GPU memory that is held now, measured; vram_bytes of it on GPUs
    context_length, n_ctx_train
                  tokens of a request now, and those that the model was trained on
    slots         sequences that run at once
    threads       compute threads of a step of one row; threads_batch of several
    attention     where each sequence has cells of its own: fused or plain
    draft         who guesses tokens: auto, none, ngram, model, mtp; or both: auto and heads
    draft_model   file name of the model that does, without its suffix
    cache_limit_bytes, cache_disk_limit_bytes
                  what the states of ended sequences may take of host memory and of the disk
    """

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


def info_of(worker: Worker, loaded: Loaded, port: int) -> Info:
    """Counters and settings; the engine's thread is not waited for."""
    engine = loaded.engine.snapshot
    return Info(
        **msgspec.structs.asdict(worker_info(worker, loaded, port)),
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
        max_tokens_out=worker.settings.max_tokens_out,
        inference_timeout_seconds=worker.settings.inference_timeout,
        uptime_seconds=round(time.monotonic() - worker.started_at, 3),
        pid=os.getpid(),
    )


@get("/info", summary="The worker as its manager sees it")
async def info(request: HttpRequest, worker: Worker, loaded: Loaded) -> Response[bytes]:
    """What it is, what it may hold, how it is now."""
    server = request.scope["server"]  # the socket's own address: --port may have been 0
    port = worker.settings.port if server is None else server[1]
    return json_response(info_of(worker, loaded, port or worker.settings.port))


@get("/version", summary="The worker's version")
async def version() -> Response[bytes]:
    """vLLM's shape."""
    return json_response(Version(__version__))


# The id may have slashes, and what is behind such a parameter is a part of it.
@get("/v2/models/{model_id:path}", summary="Whether the model is ready")
async def model_ready(model_id: str, loaded: Loaded) -> Response[bytes]:
    """GET /v2/models/{id}/ready."""
    path, _, wanted = str(model_id).rpartition("/")
    if wanted != "ready":
        raise NotFoundError("There is only /v2/models/{id}/ready.")
    adapter = named(path, loaded)
    return json_response(ModelReady(loaded.model_id if adapter is None else adapter.name))


# llama-server's way to tell a new process from counters that began anew.
_STARTED = {"Process-Start-Time-Unix": str(int(time.time()))}


@get(paths.METRICS, summary="Prometheus metrics")
async def metrics(
    request: HttpRequest, worker: Worker, loaded: Loaded, journal: Journal, window: Window
) -> Response[bytes]:
    """Counters, gauges and histograms as text, or as OpenMetrics for who accepts that."""
    from worker.api.info.collector import metrics_text  # prometheus_client takes 15 ms

    accept = request.headers.get("accept", "")
    text, media_type = metrics_text(worker, loaded, journal.outcomes, window, accept)
    return Response(text, media_type=media_type, headers=_STARTED)
