"""The outermost layer: request ids, HEAD for every GET, 401 without the key, 503 until ready and
while draining. It is there before the application that it wraps."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import msgspec

from worker import log
from worker.errors import (
    NotAuthenticatedError,
    QueueFullError,
    UnavailableError,
    WorkerError,
)
from worker.lifecycle.state import State
from worker.lifecycle.worker import Worker
from worker.service.front import paths
from worker.service.front.auth import Auth
from worker.service.front.replies import reply_of_ours
from worker.service.front.shapes import shaped

_MAX_ID = 256
_JOB_STREAM = "/stream"
# How loading goes, and being told to stop.
_ALWAYS = frozenset({paths.PROGRESS, *paths.SHUTDOWN})
# What concerns work that was accepted before.
_WHILE_DRAINING = frozenset({"/cancel"})


class Gate:
    """Wraps the application, so that paths it does not know answer 503 too while loading.

    What may pass already waits until the application is there.
    """

    def __init__(self, worker: Worker) -> None:
        self._app: Any = None
        self._opened = asyncio.Event()
        self._worker = worker
        self._auth = Auth(worker.settings.api_key)

    def open(self, app: Any) -> None:
        """Pass requests on to `app` from now on."""
        self._app = app
        self._opened.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer what must not reach the application, pass on the rest."""
        ids = _ids(scope["headers"])
        log.bind_request(**{name.replace("-", "_"): value for name, value in ids.items()})
        fields = [(name.encode(), value.encode("latin-1")) for name, value in ids.items()]
        if scope["path"].startswith(paths.MESSAGES):  # where Anthropic's clients look for it
            fields.append((b"request-id", dict(fields)[b"x-request-id"]))
        # A job can be read once: asking for its headers must not be that.
        head = scope["method"] == "HEAD" and not scope["path"].endswith(_JOB_STREAM)
        if head:
            scope = {**scope, "method": "GET"}
        started = False

        async def send_with_ids(message: Any) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *fields]}
            elif head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            try:
                await self._opened.wait()
                await self._app(scope, receive, send_with_ids)
            except asyncio.CancelledError:  # the process ends before this answer is there
                refusal = UnavailableError("The worker stopped.", code="draining")
        if refusal is not None and not started:
            await _send_error(scope["path"], refusal, send_with_ids)

    def _refusal(self, scope: Any) -> WorkerError | None:
        """Why this cannot be answered now, or None."""
        state, path = self._worker.state, scope["path"]
        try:
            self._auth.check(path, scope["headers"])
        except NotAuthenticatedError as error:
            return error
        if state is State.READY and path in paths.GENERATING:
            try:
                self._worker.loaded.engine.check_place()
            except QueueFullError as error:
                return error
        if state is State.READY or path in _ALWAYS:
            return None
        if state is State.DRAINING and (path in _WHILE_DRAINING or path.endswith(_JOB_STREAM)):
            return None
        if state is State.LOADING:
            return UnavailableError("Loading model", code="loading")
        if state is State.FAILED:
            return UnavailableError(f"The worker failed: {self._worker.error}", code="failed")
        return UnavailableError("The worker is shutting down.", code="draining")


async def _send_error(path: str, error: WorkerError, send: Any) -> None:
    status, reply, headers = reply_of_ours(error)
    body = msgspec.json.encode(shaped(path, status, reply))
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    fields += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


def _ids(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """The client's own ids where it sent printable ones, and a request id in any case."""
    found: dict[str, str] = {}
    for name in ("x-request-id", "x-correlation-id"):
        for key, value in headers:
            text = value.decode("latin-1")
            if key == name.encode() and 0 < len(text) <= _MAX_ID and text.isprintable():
                found[name] = text
                break
    found.setdefault("x-request-id", f"req-{uuid.uuid4().hex}")
    return found
