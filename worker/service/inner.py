"""Requests that the worker makes to its own routes: lines of batches, background responses that a
process before this one began."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import msgspec

from worker import log
from worker.account import Account
from worker.api.answer.shapes import error_body
from worker.api.batches.runner import LineReply
from worker.errors import RequestError
from worker.http import paths
from worker.http.connections import ENTER, INNER
from worker.http.replies import reply_of_ours
from worker.lifecycle.worker import Worker
from worker.requests.journal import Journal


class InnerClient:
    """Calls the application as the gate does, without a connection: 0.3 ms less for each line.

    What it asks for is a request like others: in the journal, cancellable, counted for its account.
    """

    def __init__(self, app: Any, worker: Worker, journal: Journal) -> None:
        self._app, self._worker, self._journal = app, worker, journal

    async def post(
        self,
        path: str,
        body: bytes,
        account: Account,
        owner: str,
        gone: asyncio.Event,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> LineReply | None:
        """The whole answer; None: `gone` was set before. owner: see `Auth.owner`"""
        request_id = f"req-{uuid.uuid4().hex}"
        log.bind_request(x_request_id=request_id)
        record = self._journal.open(request_id, None, "POST", path)
        record.account, record.owner = account, owner
        sleeper = self._worker.sleeper
        parts: list[bytes] = []
        status: int | None = None
        is_read = has_come = False

        async def receive() -> Any:
            nonlocal is_read
            if not is_read:
                is_read = True
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        async def enter() -> None:
            nonlocal has_come
            if sleeper is not None:
                await sleeper.come()
                has_come = True

        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                *headers,
            ],
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 0),
            ENTER: enter,
            INNER: True,
        }
        try:
            if path in paths.WRITING or path in paths.DECIDING:
                self._worker.loaded.check_writes()
            await self._app(scope, receive, send)
        except RequestError as error:
            record.on_failure(error)
            status, reply, _ = reply_of_ours(error)
            parts = [msgspec.json.encode(error_body(path, status, reply))]
        finally:
            if has_come and sleeper is not None:
                sleeper.go()
            record.pattern = f"POST {path}"
            record.on_answer(status)
        if status is None or (status == 499 and gone.is_set()):
            return None
        return LineReply(status, request_id, b"".join(parts))
