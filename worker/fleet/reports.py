"""What a worker tells the replica that has it in its charge: that it is ready, then heartbeats."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any

import msgspec


class ReadyWord(msgspec.Struct):
    """Of the ready callback's body what matters here; the rest would import the engine."""

    url: str
    port: int
    pid: int


class Beat(msgspec.Struct):
    """Of a heartbeat's body."""

    health_status: str


class Reports:
    """An ASGI application. Its paths begin with a secret: who knows it is the worker.

    heard   when the worker last said something, by the monotonic clock
    health  what it said then: healthy, degraded or stalled
    """

    def __init__(self) -> None:
        self.secret = secrets.token_urlsafe(16)
        self.expect()

    def expect(self) -> asyncio.Future[ReadyWord]:
        """A worker is started: what it will say when it is ready."""
        self.ready: asyncio.Future[ReadyWord] = asyncio.get_running_loop().create_future()
        self.heard = time.monotonic()
        self.health = ""
        return self.ready

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Hear what is POSTed to `/SECRET/ready` and `/SECRET/beat`."""
        data, more = b"", True
        while more:
            message = await receive()
            data += message.get("body", b"")
            more = message.get("more_body", False)
        status = 204 if self._hear(scope["path"], data) else 404
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def _hear(self, path: str, data: bytes) -> bool:
        try:
            if path == f"/{self.secret}/ready" and not self.ready.done():
                self.ready.set_result(msgspec.json.decode(data, type=ReadyWord))
            elif path == f"/{self.secret}/beat":
                self.health = msgspec.json.decode(data, type=Beat).health_status
            else:
                return False
        except msgspec.DecodeError:
            return False
        self.heard = time.monotonic()
        return True
