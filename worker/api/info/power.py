"""POST /sleep and /wake_up, the model's memory in vLLM's shapes; POST /shutdown: leave, as at
SIGTERM."""

from __future__ import annotations

import msgspec
from litestar import Response, get, post

from worker.api.answer.errors import json_response
from worker.errors import RequestError, UnavailableError
from worker.http import paths
from worker.lifecycle.sleeper import Sleeper
from worker.lifecycle.worker import Worker


class Sleeping(msgspec.Struct):
    """Whether the model's memory was given back."""

    is_sleeping: bool


def _sleeper(worker: Worker) -> Sleeper:
    if worker.sleeper is None:
        raise UnavailableError("Loading model", code="loading")
    return worker.sleeper


# Levels 1 and 2 of vLLM's differ in where it keeps weights; here they are in their file.
@post(paths.SLEEP, status_code=200, summary="Give the model's memory back")
async def sleep(worker: Worker, mode: str = "wait") -> Response[bytes]:
    """Once what runs has ended. With the key; without one, from this machine only."""
    if mode != "wait":
        raise RequestError("mode must be wait: what runs ends first.", param="mode")
    await _sleeper(worker).sleep()
    return json_response(Sleeping(True))


@post(paths.WAKE_UP, status_code=200, summary="Load the model again")
async def wake_up(worker: Worker) -> Response[bytes]:
    """As the next request would."""
    await _sleeper(worker).wake()
    return json_response(Sleeping(False))


@get("/is_sleeping", summary="Whether the model sleeps")
async def is_sleeping(worker: Worker) -> Response[bytes]:
    """vLLM's routers ask before they send work."""
    return json_response(Sleeping(worker.is_sleeping))


class ShutdownReply(msgspec.Struct):
    """`drain_timeout`: seconds that running requests still have, at most."""

    status: str
    drain_timeout: float


@post(paths.SHUTDOWN, status_code=202, summary="Drain and leave")
async def shutdown(worker: Worker) -> Response[bytes]:
    """With the key; without one, from this machine only."""
    worker.request_stop("request")
    return json_response(ShutdownReply("stopping", worker.settings.drain_timeout), 202)
