"""HTTP/1.1 over a plain socket: cheap enough for hours, and it can be cut at any byte."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

LIMIT = 1 << 20  # bytes of a line, such as an event with a whole response
_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST


class WireError(Exception):
    """The other side closed, or said what is not HTTP."""


class WireAnswer:
    """Status, headers (lower case) and body."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    @property
    def lines(self) -> list[bytes]:
        """The body's lines that are not empty, without `data: `."""
        return [line.removeprefix(b"data: ") for line in self.body.splitlines() if line]


def request_bytes(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """A request as it goes over the wire; `_` in a header's name stands for `-`."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Wire:
    """One connection, opened when it is needed."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> WireAnswer:
        """The whole answer. Raises WireError and OSError."""
        data = body if isinstance(body, bytes) else b"" if body is None else encoded(body)
        await self.send(request_bytes(method, path, data, **headers))
        status, head = await self.head()
        parts = [part async for part in self.parts(head)]
        if head.get("connection") == "close":
            self.close()
        return WireAnswer(status, head, b"".join(parts))

    async def send(self, data: bytes) -> None:
        """Write all of it."""
        if self._writer is None or self._writer.is_closing() or self._reader.at_eof():  # pyright: ignore
            self.close()
            self._reader, self._writer = await asyncio.open_connection(*self._address, limit=LIMIT)
        self._writer.write(data)
        await self._writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers."""
        assert self._reader is not None
        try:
            text = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            raise WireError("closed before the head") from None
        first, *lines = text.split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def parts(self, head: dict[str, str]) -> AsyncIterator[bytes]:
        """The body as it comes."""
        reader = self._reader
        assert reader is not None
        try:
            if "content-length" in head:
                yield await reader.readexactly(int(head["content-length"]))
                return
            while size := int(await reader.readline() or b"x", 16):
                yield (await reader.readexactly(size + 2))[:-2]
            await reader.readline()
        except (asyncio.IncompleteReadError, ValueError):
            raise WireError("closed in the body") from None

    async def rest(self) -> bytes:
        """What comes until the other side closes."""
        assert self._reader is not None
        return await self._reader.read()

    def close(self, *, at_once: bool = False) -> None:
        """Leave; `at_once`: by RST, and what was not sent is lost."""
        if self._writer is not None:
            if at_once:
                sock = self._writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                self._writer.transport.abort()
            else:
                self._writer.close()
            self._reader = self._writer = None


def encoded(body: object) -> bytes:
    """JSON, as most clients write it."""
    return json.dumps(body).encode()
