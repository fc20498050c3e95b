"""GET /v1/loading/progress: how far the model is loaded, as events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from worker.errors import UnavailableError, WorkerError
from worker.http import sse
from worker.lifecycle.state import State
from worker.lifecycle.worker import Worker

_INTERVAL_S = 0.05


class LoadProgress(msgspec.Struct, tag_field="stage", tag="loading_to_vram"):
    """The stage's name is the original worker's, also where the memory is the host's.

    progress       share of the weights that is in place, 0 to 1
    layers_loaded  that share of the layers; 0 of 0 until the file is read
    vram_mb        MiB of weights on GPUs so far
    """

    progress: float
    layers_loaded: int
    layers_total: int
    vram_mb: int


class Ready(msgspec.Struct, tag_field="stage", tag="ready"):
    """The last event of a load that went well."""


class NotLoaded(msgspec.Struct, tag_field="stage", tag="error"):
    """The last event of one that did not."""

    code: str
    message: str


async def events_of(worker: Worker) -> AsyncIterator[bytes]:
    """Each change while the model loads, then how that ended."""
    told: LoadProgress | None = None
    while worker.state is State.LOADING:
        now = _loading(worker)
        if now != told:
            told = now
            yield sse.frame(now)
        await asyncio.sleep(_INTERVAL_S)
    if worker.state is State.READY:
        yield sse.frame(Ready())
    else:
        error: WorkerError = worker.error or UnavailableError(
            "The worker is shutting down.", code="draining"
        )
        yield sse.frame(NotLoaded(error.code, str(error)))
    yield sse.DONE


def _loading(worker: Worker) -> LoadProgress:
    share = worker.progress
    prepared = worker.prepared
    layers = prepared.config.layers if prepared else 0
    placements = prepared.plan.devices if prepared else ()
    on_gpus = sum(p.nbytes for p in placements if p.part == "weights" and p.device != "CPU")
    return LoadProgress(round(share, 2), int(share * layers), layers, int(share * on_gpus) >> 20)
