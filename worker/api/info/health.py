"""GET /health and its other names: is this worker well, and what is it."""

from __future__ import annotations

import time

import msgspec
from litestar import Response, get

from worker.api.common.errors import json_response
from worker.http import paths
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker


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
