"""A gateway over workers, or over programs that pose as workers, without Ray."""

from __future__ import annotations

import asyncio
import socketserver
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from aiohttp import web

from gguf_fleet.front.gateway import Gateway
from gguf_fleet.front.port import FleetPort
from gguf_fleet.keys import KeyFile
from gguf_fleet.roster import Roster
from gguf_fleet.routing import Member

KEY = "worker-key"
T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def member(id: str, url: str, *, slots: int = 4, limit: int = 68, key: str = KEY) -> Member:  # noqa: A002
    """A replica at that address."""
    return Member(id=id, url=url, key=key, slots=slots, limit=limit, node="node")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def stop(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextmanager
def listening(app: Handler) -> Generator[str]:
    """A server that answers in a thread, at the URL given."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await app(request)

    loop = Loop()
    answering = web.Application(client_max_size=1 << 26)
    answering.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(answering, access_log=None, shutdown_timeout=0.1)

    async def start() -> int:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner.addresses[0][1]

    try:
        yield f"http://127.0.0.1:{loop.run(start())}"
    finally:
        loop.run(runner.cleanup())
        loop.stop()


class OpenGateway:
    """A gateway that answers in a thread, until it is told to leave."""

    def __init__(
        self, roster: Roster, keys: KeyFile | None, port: int = 0, *, shares: bool = False
    ) -> None:
        self._loop = Loop()
        self._port = self._loop.run(self._open(Gateway(roster, keys, shares=shares), port))
        self.url = f"http://127.0.0.1:{self._port.port}"

    @property
    def listens(self) -> bool:
        """Whether it takes new connections."""
        return self._port.listens

    def leave(self) -> None:
        """Wait until all that was begun is answered."""
        self._loop.run(self._port.close())

    def stop(self) -> None:
        """Leave at once."""
        self._loop.stop()

    async def _open(self, gateway: Gateway, port: int) -> FleetPort:
        made = FleetPort(gateway, "127.0.0.1", port)
        await made.open()
        return made


@contextmanager
def gateway(
    models: dict[str, list[Member]], *, affinity: str = "prefix", key: str | None = None
) -> Generator[str]:
    """A gateway over these replicas."""
    roster = Roster(dict.fromkeys(models, affinity))
    for name, members in models.items():
        roster.publish(name, members)
    with gateway_over(roster, key=key) as url:
        yield url


@contextmanager
def gateway_over(
    roster: Roster, *, key: str | None = None, keys: KeyFile | None = None
) -> Generator[str]:
    """A gateway that looks at this roster. keys: several, or key: one"""
    made = OpenGateway(roster, keys if key is None else KeyFile("keys", (key,)))
    try:
        yield made.url
    finally:
        made.leave()
        made.stop()


@contextmanager
def hanging_up() -> Generator[str]:
    """A URL whose connections end once something was said."""

    class HangUp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), HangUp) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class Impostor:
    """Poses as a worker: keeps what it is asked, and says what it is told to.

    parts   of the answer's body, sent one by one
    marks   it says that its events are marked for a relay
    breaks  the connection ends without the body's end
    waits   for this after the first part
    said    how many parts were sent
    """

    def __init__(
        self,
        *parts: bytes,
        status: int = 200,
        kind: str = "application/json",
        breaks: bool = False,
        marks: bool = False,
        waits: threading.Event | None = None,
    ) -> None:
        self.parts = parts
        self.status = status
        self.kind = kind
        self.breaks = breaks
        self.marks = marks
        self.waits = waits
        self.said = 0
        self.asked: list[tuple[Mapping[str, str], str, bytes]] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        self.asked.append((request.headers, request.raw_path, await request.read()))
        headers = {"content-type": self.kind, "x-theirs": "1"}
        headers |= {"x-relay-marks": "on"} if self.marks else {}
        out = web.StreamResponse(status=self.status, headers=headers)
        await out.prepare(request)
        for part in self.parts:
            await out.write(part)
            self.said += 1
            await asyncio.sleep(0)
            if self.waits is not None:
                await asyncio.to_thread(self.waits.wait)
        if self.breaks and request.transport is not None:
            request.transport.close()
        else:
            await out.write_eof()
        return out
