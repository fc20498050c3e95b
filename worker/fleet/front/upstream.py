"""The gateway's way to workers: connections that are kept, asked, and closed when told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from worker.fleet.front.connection import HeaderList, LostError, Sink, WorkerConnection
from worker.fleet.front.pulse import Owing
from worker.fleet.routing import Member
from worker.http.http import REST_S

_CONNECT_S = 2.0
_LOOK_S = 5.0
# What rests for less is still open, unless the worker had no room for it.
_REST_S = REST_S - 15.0
# The kernel asks a silent peer this often, and gives it up after so many answers that did not come.
_PROBES = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
# Of one connection alone, and what the gateway says itself.
_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding",
    b"upgrade", b"date", b"server",
})  # fmt: skip
_KEYS = frozenset({b"authorization", b"x-api-key", b"content-length", b"expect"})
_NOT_SENT = _HOP | _KEYS
_STREAMS = (b"text/event-stream", b"application/x-ndjson")


class WorkerReply:
    """A worker's answer: its head is here and its body has begun."""

    def __init__(self, connection: WorkerConnection) -> None:
        self.connection = connection
        self.status = connection.status
        self.headers: HeaderList = [each for each in connection.headers if each[0] not in _HOP]
        kinds = (value for name, value in self.headers if name == b"content-type")
        self.kind = next(kinds, b"").partition(b";")[0]

    @property
    def is_stream(self) -> bool:
        """Whether it comes event by event, or line by line."""
        return self.kind in _STREAMS

    async def pass_to(self, sink: Sink) -> None:
        """Give all parts of the body to `sink`. Raises LostError where it breaks off."""
        await self.connection.pass_to(sink)

    async def whole(self) -> bytes:
        """All of the body. Raises LostError."""
        parts: list[bytes] = []
        await self.connection.pass_to(parts.append)
        return b"".join(parts)


class Upstream:
    """All connections to workers; made on the event loop that uses it.

    owing  what is not answered yet
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # By the worker's address: (since when it rests, the connection), the last one first used.
        self._resting: dict[str, list[tuple[float, WorkerConnection]]] = {}
        self.owing = Owing()
        self._look = self._loop.call_later(_LOOK_S, self._look_around)

    @asynccontextmanager
    async def ask(
        self, member: Member, method: str, target: str, headers: HeaderList, body: bytes
    ) -> AsyncGenerator[WorkerReply]:
        """The worker's reply. Leaving the block early closes the connection, and with it the
        worker's work. Raises LostError.

        target: path and query as the client wrote them
        """
        request = _request(member, method, target, headers, body)
        connection = await self._asked(member, request, is_head=method == "HEAD")
        reply = WorkerReply(connection)
        try:
            yield reply
        finally:
            self.owing.end(member, connection)
            self._give_back(member, connection, reply)

    async def close(self) -> None:
        """Close all connections that rest."""
        self._look.cancel()
        for resting in self._resting.values():
            for _, connection in resting:
                connection.close()
        self._resting.clear()

    async def _asked(self, member: Member, request: bytes, *, is_head: bool) -> WorkerConnection:
        """A connection on which the answer has begun. Raises LostError."""
        kept = self._kept(member)
        if kept is not None:
            try:
                await self._ask(member, kept, request, is_head=is_head)
            except LostError:
                # The worker may just have had enough of a connection that rested.
                if kept.status or kept.is_given_up:
                    raise
            else:
                return kept
        connection = await _connected(member)
        await self._ask(member, connection, request, is_head=is_head)
        return connection

    async def _ask(
        self, member: Member, connection: WorkerConnection, request: bytes, *, is_head: bool
    ) -> None:
        """Wait for the beginning of the answer; without one the connection is closed."""
        self.owing.begin(member, connection)
        try:
            await connection.ask(request, is_head=is_head)
        except BaseException:
            self.owing.end(member, connection)
            connection.close()
            raise

    def _kept(self, member: Member) -> WorkerConnection | None:
        resting = self._resting.get(member.url, [])
        while resting:
            since, connection = resting.pop()
            if self._loop.time() - since < _REST_S and connection.can_be_used:
                return connection
            connection.close()
        return None

    def _give_back(self, member: Member, connection: WorkerConnection, reply: WorkerReply) -> None:
        stays = (b"connection", b"close") not in connection.headers and reply.status != 101
        if not stays or not connection.can_be_used:
            connection.close()
            return
        connection.rest()
        self._resting.setdefault(member.url, []).append((self._loop.time(), connection))

    def _look_around(self) -> None:
        """Close what has rested for long."""
        now = self._loop.time()
        for url, resting in list(self._resting.items()):
            while resting and now - resting[0][0] > _REST_S:
                resting.pop(0)[1].close()
            if not resting:
                del self._resting[url]
        self._look = self._loop.call_later(_LOOK_S, self._look_around)


async def _connected(member: Member) -> WorkerConnection:
    """A new connection. Raises LostError."""
    parts = urlsplit(member.url)
    assert parts.hostname is not None
    family = socket.AF_INET6 if ":" in parts.hostname else socket.AF_INET
    # With the protocol named asyncio switches Nagle's algorithm off.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if hasattr(socket, name):  # macOS has another name for the first
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_CONNECT_S):
            await loop.sock_connect(made, (parts.hostname, parts.port))
            _, connection = await loop.create_connection(WorkerConnection, sock=made)
    except OSError as error:  # TimeoutError is one
        made.close()
        raise LostError(str(error)) from None
    except BaseException:
        made.close()
        raise
    return connection


def _request(member: Member, method: str, target: str, headers: HeaderList, body: bytes) -> bytes:
    """The bytes of a request, in one piece."""
    lines = [f"{method} {target} HTTP/1.1".encode("latin-1")]
    if not any(name == b"host" for name, _ in headers):
        lines.append(b"host: " + urlsplit(member.url).netloc.encode())
    lines += [b"%b: %b" % field for field in headers if field[0] not in _NOT_SENT]
    lines.append(b"authorization: Bearer " + member.key.encode())
    if body or method not in ("GET", "HEAD"):
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body])
