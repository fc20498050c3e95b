"""A gateway over workers, or over programs that pose as workers, without Ray."""

from __future__ import annotations

import asyncio
import socketserver
import threading
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from worker.fleet.front.gateway import Gateway
from worker.fleet.front.port import FleetPort
from worker.fleet.roster import Roster
from worker.fleet.routing import Member
from worker.http.connections import default_connections
from worker.http.http import server_of
from worker.http.sockets import bind
from worker.keys import KeyFile

KEY = "worker-key"
T = TypeVar("T")


def member(id: str, url: str, *, slots: int = 4, limit: int = 68, key: str = KEY) -> Member:  # noqa: A002
    """A replica at that address."""
    return Member(id=id, url=url, key=key, slots=slots, limit=limit, node="node")


@contextmanager
def listening(app: Any) -> Generator[str]:
    """An ASGI application that answers in a thread, at the URL given."""
    sock = bind("127.0.0.1", 0)
    server = server_of(app, default_connections())
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)


class OpenGateway:
    """A gateway that answers in a thread, until it is told to leave."""

    def __init__(
        self, roster: Roster, keys: KeyFile | None, port: int = 0, *, shares: bool = False
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._port = self._run(self._open(Gateway(roster, keys, shares=shares), port))
        self.url = f"http://127.0.0.1:{self._port.port}"

    @property
    def listens(self) -> bool:
        """Whether it takes new connections."""
        return self._port.listens

    def leave(self) -> None:
        """Wait until all that was begun is answered."""
        self._run(self._port.close())

    def stop(self) -> None:
        """Leave at once."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _open(self, gateway: Gateway, port: int) -> FleetPort:
        made = FleetPort(gateway, "127.0.0.1", port)
        await made.open()
        return made

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


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
def gateway_over(roster: Roster, *, key: str | None = None) -> Generator[str]:
    """A gateway that looks at this roster."""
    made = OpenGateway(roster, None if key is None else KeyFile("keys", (key,)))
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
        waits: threading.Event | None = None,
    ) -> None:
        self.parts = parts
        self.status = status
        self.kind = kind
        self.breaks = breaks
        self.waits = waits
        self.said = 0
        self.asked: list[tuple[dict[bytes, bytes], str, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        target = scope["raw_path"].decode() + ("?" if scope["query_string"] else "")
        self.asked.append((dict(scope["headers"]), target + scope["query_string"].decode(), body))
        headers = [(b"content-type", self.kind.encode()), (b"x-theirs", b"1")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        for part in self.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            self.said += 1
            await asyncio.sleep(0)
            if self.waits is not None:
                await asyncio.to_thread(self.waits.wait)
        if self.breaks:
            raise ConnectionError
        await send({"type": "http.response.body", "body": b""})
