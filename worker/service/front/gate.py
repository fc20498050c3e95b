"""The outermost layer: request ids, HEAD for every GET, the page for browsers, 401 without the key,
503 until ready and while draining, and which answers pages of other origins may read. It is there
before the application that it wraps."""

from __future__ import annotations

import asyncio
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
from worker.limits import CONNECTIONS
from worker.service.front import paths
from worker.service.front.auth import Auth
from worker.service.front.connections import GUEST
from worker.service.front.cors import Cors
from worker.service.front.host import refusal_of_host
from worker.service.front.ids import ids_of
from worker.service.front.replies import reply_of_ours
from worker.service.front.shapes import shaped
from worker.service.page import page
from worker.service.requests.journal import Journal


class Gate:
    """Wraps the application, so that paths it does not know answer 503 too while loading.

    What may pass already waits until the application is there.
    """

    def __init__(self, worker: Worker, journal: Journal) -> None:
        """journal: gets a record of each request"""
        self._app: Any = None
        self._opened = asyncio.Event()
        self._worker = worker
        self._journal = journal
        self.auth = Auth(worker.settings.api_key, worker.settings.api_key_file)
        self._cors = Cors(worker.settings.cors)
        self._has_page = worker.settings.page
        self._num_entering = 0

    def open(self, app: Any) -> None:
        """Pass requests on to `app` from now on."""
        self._app = app
        self._opened.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer what must not reach the application, pass on the rest."""
        ids = ids_of(scope["headers"])
        log.bind_request(**{name.replace("-", "_"): value for name, value in ids.items()})
        record = self._journal.open(
            ids["x-request-id"],
            ids.get("x-correlation-id"),
            scope["method"],
            scope["path"],
            scope["headers"],
        )
        fields = [(name.encode(), value.encode("latin-1")) for name, value in ids.items()]
        if scope["path"].startswith(paths.MESSAGES):  # where Anthropic's clients look for it
            fields.append((b"request-id", dict(fields)[b"x-request-id"]))
        fields += self._cors.fields(scope)
        # A job can be read once: asking for its headers must not be that.
        head = scope["method"] == "HEAD" and not scope["path"].endswith(paths.JOB_STREAM)
        if head:
            scope = {**scope, "method": "GET"}
        if scope["path"].startswith(paths.ONE_REQUEST):  # an id may hold a slash
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
        status: int | None = None
        has_ended = False

        async def send_with_ids(message: Any) -> None:
            nonlocal status, has_ended
            if has_ended:
                return
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *fields]}
            elif head:  # with its first part all is said, also of events that would not end
                message = {"type": "http.response.body", "body": b"", "more_body": False}
                has_ended = True
            await send(message)

        is_page = self._has_page and page.is_wanted(scope)
        preflight = self._cors.preflight(scope)
        refusal = refusal_of_host(scope["headers"]) or (
            page.refusal_of(scope) if is_page else self._refusal(scope)
        )
        try:
            if preflight is not None:
                refusal = None
                await _send(send_with_ids, 204, preflight, b"")
            elif refusal is None and is_page:
                await page.send_page(send_with_ids)
            elif refusal is None:
                try:
                    if self._is_work(scope):
                        await self._let_others_pass()
                    await self._opened.wait()
                    await self._app(scope, receive, send_with_ids)
                except asyncio.CancelledError:  # the process ends before this answer is there
                    refusal = UnavailableError("The worker stopped.", code="draining")
            if refusal is not None and status is None:
                if self._is_work(scope):
                    record.pattern = f"POST {scope['path']}"
                record.failed(refusal)
                await _send_error(scope["path"], refusal, send_with_ids)
        finally:
            if "path_template" in scope:  # Litestar has found a route
                record.pattern = f"{scope['method']} {scope['path_template']}"
            record.answered(status)

    async def _let_others_pass(self) -> None:
        """Who comes at the same moment and is refused is told so before work begins."""
        self._num_entering += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._num_entering -= 1

    @staticmethod
    def _is_work(scope: Any) -> bool:
        return scope["method"] == "POST" and scope["path"] in paths.GENERATING

    def _refusal(self, scope: Any) -> WorkerError | None:
        """Why this cannot be answered now, or None."""
        state, path = self._worker.state, scope["path"]
        try:
            self.auth.check(path, scope["headers"])
        except NotAuthenticatedError as error:
            return error
        if GUEST in scope and path not in paths.HEALTH:
            return UnavailableError(
                "There are too many connections.", hint="Try again.", code=CONNECTIONS.code
            )
        if state is State.READY and self._is_work(scope):
            try:
                self._worker.loaded.engine.check_place(self._num_entering)
            except QueueFullError as error:
                return error
        if paths.passes(path, state):
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
    await _send(send, status, fields, body)


async def _send(send: Any, status: int, fields: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})
