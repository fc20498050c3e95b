"""POST /shutdown: leave, as at SIGTERM."""

from __future__ import annotations

import msgspec
from litestar import Response, post

from worker.api.common.body import HttpRequest
from worker.api.common.errors import json_response
from worker.api.common.origins import check_local
from worker.http import paths
from worker.lifecycle.worker import Worker


class ShutdownReply(msgspec.Struct):
    """`drain_timeout`: seconds that running requests still have, at most."""

    status: str
    drain_timeout: float


@post(paths.SHUTDOWN, status_code=202, summary="Drain and leave")
async def shutdown(request: HttpRequest, worker: Worker) -> Response[bytes]:
    """With the key; without one, from this machine only."""
    if not worker.settings.api_keys:
        check_local(request)
    worker.request_stop("request")
    return json_response(ShutdownReply("stopping", worker.settings.drain_timeout), 202)
