"""What a worker tells the replica that has it in its charge: that it is ready, then heartbeats."""

from __future__ import annotations

import asyncio
import secrets
import time

import msgspec
from aiohttp import web

_LOOPBACK = "127.0.0.1"


class ReadyWord(msgspec.Struct):
    """Of the ready callback's body what matters here."""

    url: str
    port: int
    pid: int


class Beat(msgspec.Struct):
    """Of a heartbeat's body."""

    health_status: str


class Reports:
    """An HTTP server whose paths begin with a secret: who knows it is the worker.

    heard   when the worker last said something, by the monotonic clock
    health  what it said then: healthy, degraded or stalled
    """

    def __init__(self) -> None:
        self._secret = secrets.token_urlsafe(16)
        self._runner: web.AppRunner | None = None
        self.expect()

    async def listen(self) -> str:
        """The URL below which the worker tells /ready and /beat."""
        app = web.Application()
        app.router.add_post(f"/{self._secret}/{{what:ready|beat}}", self._hear)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, _LOOPBACK, 0).start()
        return f"http://{_LOOPBACK}:{self._runner.addresses[0][1]}/{self._secret}"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def expect(self) -> asyncio.Future[ReadyWord]:
        """A worker is started: what it will say when it is ready."""
        self.ready: asyncio.Future[ReadyWord] = asyncio.get_running_loop().create_future()
        self.heard = time.monotonic()
        self.health = ""
        return self.ready

    async def _hear(self, request: web.Request) -> web.Response:
        data = await request.read()
        try:
            if request.match_info["what"] == "beat":
                self.health = msgspec.json.decode(data, type=Beat).health_status
            elif not self.ready.done():
                self.ready.set_result(msgspec.json.decode(data, type=ReadyWord))
        except msgspec.DecodeError:
            return web.Response(status=400)
        self.heard = time.monotonic()
        return web.Response(status=204)
