"""A pool manager that fails in every way it can."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
_FAILED = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
_MOVED = b"HTTP/1.1 302 Away\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
_ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b"a" * 70_000
_GARBAGE = b"\x00\xff not HTTP\r\n\r\n"
# What heartbeats get, one after the other; "refuse": nobody listens for some seconds.
WAYS = (_OK, _FAILED, b"", _MOVED, "hang", _ENDLESS, _OK, _GARBAGE, "refuse")
REFUSED_S = 3.0


class FailingManager:
    """Accepts the ready callback, and ill-treats heartbeats. `told`: what these got, how often."""

    def __init__(self) -> None:
        self.told: Counter[str] = Counter()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._number = 0
        self._met: set[asyncio.StreamWriter] = set()
        self._later: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen; `port` is known afterwards, and stays."""
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", self.port)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Let nobody in any more."""
        for task in list(self._later):
            task.cancel()
        for writer in self._met:
            writer.close()
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._met.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            way = _OK
            if b" /beat " in head.partition(b"\r\n")[0]:
                way = WAYS[self._number % len(WAYS)]
                self._number += 1
                self.told[_name(way)] += 1
            if isinstance(way, bytes):
                writer.write(way)
                await writer.drain()
            elif way == "hang":
                await reader.read()  # until the worker gives up
            else:
                task = asyncio.ensure_future(self._refuse())
                self._later.add(task)
                task.add_done_callback(self._later.discard)
        self._met.discard(writer)
        writer.close()

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            await asyncio.sleep(REFUSED_S)
            await self.start()


def _name(way: bytes | str) -> str:
    if isinstance(way, str):
        return way
    names = {_OK: "200", _FAILED: "500", _MOVED: "302", _ENDLESS: "endless", b"": "closed"}
    return names.get(way, "garbage")
