"""The gateway's way to workers: bytes out, bytes back, and connections that close when told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from yarl import URL

from worker.fleet.routing import Member

HeaderList = list[tuple[bytes, bytes]]

_CONNECT_S = 2.0
# A worker's stream says something each second. What is silent for so long has lost its machine.
SILENCE_S = 30.0
# The kernel asks a silent peer this often, and gives it up after so many answers that did not come.
_PROBES = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
# Of one connection alone, and what the gateway says itself.
_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding",
    b"upgrade", b"date", b"server",
})  # fmt: skip
_KEYS = frozenset({b"authorization", b"x-api-key", b"content-length", b"expect"})
# What the client would add by itself, to bytes that are somebody else's.
_NOT_ADDED = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class LostError(Exception):
    """The worker cannot be reached, or went away before it had answered."""


class WorkerReply:
    """A worker's answer: its head is here, its body comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.kind = response.content_type
        self.headers: HeaderList = [
            (name.lower(), value)
            for name, value in response.raw_headers
            if name.lower() not in _HOP
        ]

    @property
    def is_stream(self) -> bool:
        """Whether it comes event by event, or line by line."""
        return self.kind in ("text/event-stream", "application/x-ndjson")

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body as it comes. Raises LostError where it breaks off."""
        content = self._response.content
        try:
            while True:
                async with asyncio.timeout(SILENCE_S if self.is_stream else None):
                    chunk = await content.readany()
                if not chunk:
                    return
                yield chunk
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one
            raise LostError(str(error)) from None

    async def whole(self) -> bytes:
        """All of the body. Raises LostError."""
        return b"".join([chunk async for chunk in self.chunks()])


class Upstream:
    """One pool of connections to all workers; made on the event loop that uses it."""

    def __init__(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, socket_factory=_socket)
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            skip_auto_headers=_NOT_ADDED,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
        )

    @asynccontextmanager
    async def ask(
        self, member: Member, method: str, target: str, headers: HeaderList, body: bytes
    ) -> AsyncGenerator[WorkerReply]:
        """The worker's reply. Leaving the block early closes the connection, and with it the
        worker's work. Raises LostError.

        target: path and query as the client wrote them
        """
        fields = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in headers
            if name not in _HOP and name not in _KEYS
        ]
        fields.append(("authorization", f"Bearer {member.key}"))
        try:
            response = await self._session.request(
                method,
                URL(member.url + target, encoded=True),
                data=body or None,
                headers=fields,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise LostError(str(error)) from None
        try:
            yield WorkerReply(response)
        finally:
            response.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


def _socket(address: Any) -> socket.socket:
    family, kind, number, _, _ = address
    made = socket.socket(family, kind, number)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if hasattr(socket, name):  # macOS has another name for the first
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
