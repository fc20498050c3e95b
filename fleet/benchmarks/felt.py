"""Clients of a fleet while something in it dies: short requests that keep coming, and streams."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_PERIOD_S = 0.05
_PATIENCE_S = 120.0
_STREAM_TOKENS = 900
# Who has waited for so long when all is over counts as not answered.
_WAITS_S = 0.9


class ShortRequest(NamedTuple):
    """One short request: when it was sent, when it ended, and whether it was answered well."""

    began: float
    ended: float
    is_good: bool


async def ask(url: str, method: str, path: str, body: Any = None, name: str = "") -> bytes:
    """The body of an answer with status 200. Raises OSError, ValueError, TimeoutError."""
    async with asyncio.timeout(_PATIENCE_S):
        reader, writer = await _sent(url, method, path, body, name)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                raise ValueError(head.decode("latin-1"))
            return await reader.read()
        except asyncio.IncompleteReadError:
            raise ConnectionError("no answer") from None
        finally:
            writer.close()


async def ask_whole(url: str, body: Any) -> bytes:
    """A completion. Raises as `ask` does."""
    return await ask(url, "POST", "/v1/completions", body)


async def ask_json(url: str, path: str) -> Any:
    """What a GET says. Raises as `ask` does, TimeoutError sooner."""
    async with asyncio.timeout(3):
        return json.loads(await ask(url, "GET", path))


class Felt:
    """Clients, from `begin` to `end`.

    streams  whether each is still whole, by the id of its request
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._probes: list[ShortRequest] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: asyncio.Task[None] | None = None
        self.streams: dict[str, bool] = {}

    async def begin(self, streams: int) -> None:
        """Let the streams begin, then requests come."""
        begun = [asyncio.Event() for _ in range(streams)]
        for number, each in enumerate(begun):
            name = f"stream-{number}-{time.monotonic_ns()}"
            self.streams[name] = True
            self._start(self._stream(name, each))
        for each in begun:
            await each.wait()
        self._sending = asyncio.create_task(self._send())
        await asyncio.sleep(0.5)

    async def end(self) -> set[str]:
        """Leave; the streams that broke off."""
        assert self._sending is not None
        self._sending.cancel()
        lost = {name for name, is_whole in self.streams.items() if not is_whole}
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return lost

    def since(self, moment: float) -> tuple[float, float, int]:
        """Of the requests sent after that moment: seconds until the first good answer, the longest
        that one waited, and how many were not answered well."""
        sent = [each for each in self._probes if each.began >= moment]
        good = [each for each in sent if each.is_good]
        first = min((each.ended for each in good), default=float("inf")) - moment
        longest = max((each.ended - each.began for each in good), default=float("inf"))
        return first, longest, len(sent) - len(good)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self) -> None:
        for number in itertools.count():
            self._start(self._probe(number))
            await asyncio.sleep(_PERIOD_S)

    async def _probe(self, number: int) -> None:
        began, is_good = time.monotonic(), False
        body = {"model": "demo", "prompt": f"{number} times", "max_tokens": 1}
        try:
            with contextlib.suppress(OSError, ValueError, TimeoutError):
                await ask_whole(self._url, body)
                is_good = True
        except asyncio.CancelledError:
            if time.monotonic() - began < _WAITS_S:  # it was sent just before the end
                raise
        self._probes.append(ShortRequest(began, time.monotonic(), is_good))

    async def _stream(self, name: str, begun: asyncio.Event) -> None:
        body = {
            "model": "demo", "prompt": "Once upon a time", "max_tokens": _STREAM_TOKENS,
            "ignore_eos": True, "stream": True,
        }  # fmt: skip
        is_whole = False
        with contextlib.suppress(OSError, ValueError):
            reader, _ = await _sent(self._url, "POST", "/v1/completions", body, name)
            while line := await reader.readline():
                if line.startswith(b"data: {"):
                    begun.set()
                if line.startswith(b"data: [DONE]"):
                    is_whole = True
                if line.startswith(b'data: {"error'):
                    break
        self.streams[name] = is_whole
        begun.set()


async def _sent(
    url: str, method: str, path: str, body: Any, name: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n"
    head += f"x-request-id: {name}\r\n" if name else ""
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(f"{head}connection: close\r\n\r\n".encode() + data)
    return reader, writer
