"""The gateway's way to workers: connections that are kept, asked, and closed when told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from gguf_fleet.errors import FleetError
from gguf_fleet.front.pulse import Debt, Owing
from gguf_fleet.routing import Member

_CONNECT_S = 2.0
# What rests for less is still open: workers close connections after 75 s.
_REST_S = 60.0
# Of one connection alone, and what the gateway says itself.
_HOP = frozenset({
    "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding",
    "upgrade", "date", "server",
})  # fmt: skip
_NOT_SENT = _HOP | {"authorization", "x-api-key", "content-length", "expect"}
T = TypeVar("T")
_STREAMS = ("text/event-stream", "application/x-ndjson")


class LostError(FleetError):
    """The worker cannot be reached, or went away before it had answered."""


class RestedError(LostError):
    """It closed the connection instead of an answer; it may have had enough of one that rested."""


class WorkerReply:
    """A worker's answer: its head is here and its body has begun, or is whole."""

    def __init__(self, response: aiohttp.ClientResponse, debt: Debt, first: bytes) -> None:
        self._response = response
        self._debt = debt
        self._first = first
        self.status = response.status
        fields = response.headers.items()
        self.headers = CIMultiDict((k, v) for k, v in fields if k.lower() not in _HOP)
        self.kind = self.headers.get("content-type", "").partition(";")[0]

    @property
    def is_stream(self) -> bool:
        """Whether it comes event by event, or line by line."""
        return self.kind in _STREAMS

    async def parts(self) -> AsyncGenerator[bytes]:
        """The body, as it comes. Raises LostError where it breaks off."""
        part, debt, content = self._first, self._debt, self._response.content
        try:
            while part:
                yield part
                part = await content.readany()
                debt.note_answer()
        except aiohttp.ClientError as error:
            raise LostError(str(error)) from None

    async def whole(self) -> bytes:
        """All of the body. Raises LostError."""
        return b"".join([part async for part in self.parts()])


class Upstream:
    """All connections to workers; made on the event loop that uses it.

    owing  what is not answered yet
    """

    def __init__(self) -> None:
        self.owing = Owing()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_REST_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("user-agent", "accept", "accept-encoding", "content-type"),
            auto_decompress=False,
        )

    @asynccontextmanager
    async def ask(
        self,
        member: Member,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> AsyncGenerator[WorkerReply]:
        """The worker's reply. Leaving the block early closes the connection, and with it the
        worker's work. Raises LostError.

        target: path and query as the client wrote them
        """
        fields = ((k, v) for k, v in (headers or {}).items() if k.lower() not in _NOT_SENT)
        sent = CIMultiDict((name, _encodable(value)) for name, value in fields)
        sent["authorization"] = f"Bearer {member.key}"
        url = URL(member.url + target, encoded=True)

        with self.owing.owe(member) as debt:
            try:
                response = await self._ask(debt, method, url, sent, body)
            except RestedError:
                response = await self._ask(debt, method, url, sent, body)
            try:
                first = await _wait(debt, response.content.readany())
                debt.close = response.close
                yield WorkerReply(response, debt, first)
            finally:
                response.close()

    async def close(self) -> None:
        await self._session.close()

    async def _ask(
        self, debt: Debt, method: str, url: URL, headers: CIMultiDict[str], body: bytes
    ) -> aiohttp.ClientResponse:
        request = self._session.request(
            method, url, headers=headers, data=body or None, allow_redirects=False
        )
        return await _wait(debt, request)


async def _wait(debt: Debt, work: Awaitable[T]) -> T:
    """What the worker says next. Raises LostError."""
    try:
        return await debt.wait(work)
    except aiohttp.ClientConnectorError as error:
        raise LostError(str(error)) from None
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
        raise RestedError(str(error)) from None
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one
        raise LostError(str(error) or "the worker says nothing") from None


def _encodable(value: str) -> str:
    """A header's value that came in bytes that are no UTF-8."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()
