"""Streams that clients may leave and come back to: their events are kept, each with a number.

    exchange --send, write--> KeptStream --since, put--> StreamReading, one for each client

The exchange runs in a task of its own and takes the stream for its client. Who reads gets what is
kept from any event on, then each new event in the callback that made it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from worker.api.intake.body import until_gone
from worker.errors import NotFoundError, RequestError
from worker.http.connections import WIRE
from worker.http.protocol import Wire
from worker.http.sse import BORDERS, CONTENT_TYPE
from worker.limits import RESUMED

# What runs in the background has no client that could say how long.
BACKGROUND_S = 300.0
# Bytes of Python for an event, beside its own.
_EVENT_BYTES = 64
_HEADER = b"x-stream-id"
# What a mark begins with, and the header that says that there are some; see `Marks`.
MARK, MARKED = b":w ", b"x-relay-marks"
ExchangeRun = Callable[[Any, Any, Any], Awaitable[None]]


class KeptStream:
    """One answer's events, numbered from 0; to its exchange an ASGI client and its `Wire`.

    first     number of the first event that is kept
    head      the answer's start; None: it has not begun
    is_over   nothing follows
    seconds   that it may be without a reader, as long as it `needs_reader`
    timer     until it is forgotten
    on_mark   gets each mark behind its events, which readers do not see then
    """

    is_clear = True

    def __init__(
        self, name: str, owner: str, seconds: float, *, needs_reader: bool, first: int = 0
    ) -> None:
        """first: events before that were told by another worker"""
        self.id, self.owner, self.seconds = name, owner, seconds
        self.needs_reader = needs_reader
        self.first = first
        self.num_bytes = 0
        self.head: Any = None
        self.is_over = False
        self.readers: set[StreamReading] = set()
        self.timer: asyncio.TimerHandle | None = None
        self.on_growth: Callable[[KeptStream, int], None] = _nothing
        self.cancel: Callable[[], None] = lambda: None
        self.on_mark: Callable[[bytes], None] | None = None
        self._left = asyncio.Event()
        self._events: list[bytes] = []
        self._border: bytes | None = None
        self._has_ids = False

    @property
    def stop(self) -> int:
        """Number of the next event."""
        return self.first + len(self._events)

    def since(self, number: int) -> list[bytes]:
        """The events from this number on. Raises NotFoundError where they are not kept any more."""
        if number < self.first:
            raise NotFoundError(
                f"Events before {self.first} are not kept any more.",
                hint="Ask again for the answer.",
                code="stream_not_found",
            )
        return self._events[number - self.first :]

    async def receive(self) -> dict[str, str]:
        """ASGI's: its client has left once nobody will come back."""
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """ASGI's."""
        if message["type"] == "http.response.start":
            fields = [*message["headers"], (_HEADER, self.id.encode())]
            if self.on_mark is not None:
                fields = [field for field in fields if field[0] != MARKED]
            kind = dict(fields)[b"content-type"]
            self._border, self._has_ids = BORDERS.get(kind), kind == CONTENT_TYPE
            self.head = {**message, "headers": fields}
            return
        if message["body"]:
            self.write(message["body"])
        if not message.get("more_body", False):
            self.end()

    def write(self, data: bytes) -> None:
        """Whole events, each with its border. Comments are passed on, but not kept."""
        border, stop = self._border, self.stop
        if border is None:  # an error before the first event, as JSON
            self._events.append(data)
            told = data
        else:
            parts: list[bytes] = []
            number = stop
            for event in data.split(border)[:-1]:
                if event[:3] == MARK and self.on_mark is not None:
                    self.on_mark(event[3:])
                elif event[:1] == b":":
                    parts.append(event + border)
                else:
                    whole = event + border
                    if self._has_ids:
                        whole = b"id: %d\n%b" % (number, whole)
                    number += 1
                    self._events.append(whole)
                    parts.append(whole)
            told = parts[0] if len(parts) == 1 else b"".join(parts)
        for reader in self.readers if told else ():
            reader.put(told, stop, self.stop)
        count = self.stop - stop
        if count:
            self.on_growth(self, len(told) + count * _EVENT_BYTES)

    def cut(self) -> None:
        """An answer that broke off; its readers' connections do, too."""
        for reader in self.readers:
            reader.cut()
        self.end()

    def put_before(self, *parts: bytes) -> None:
        """Events that were told by another process, up to the first one here."""
        found = [event + b"\n\n" for part in parts for event in part.split(b"\n\n")[:-1]]
        self._events[:0] = found
        self.first -= len(found)

    def shorten(self) -> int:
        """Drop the older half of the events; the bytes that this frees."""
        count = max(1, len(self._events) // 2)
        freed = sum(map(len, self._events[:count])) + count * _EVENT_BYTES
        del self._events[:count]
        self.first += count
        self.num_bytes -= freed
        return freed

    def end(self) -> None:
        """Nothing follows."""
        self.is_over = True
        for reader in self.readers:
            reader.wake()

    def leave(self) -> None:
        """Nobody will come back: what still runs ends."""
        self._left.set()


class KeptStreams:
    """All of them by id; for the event loop's thread."""

    def __init__(self, seconds: float, most_bytes: int = RESUMED.most << 20) -> None:
        """seconds: that one is kept without a reader"""
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._bytes = 0
        self._found: dict[str, KeptStream] = {}  # the oldest first
        self._tasks: set[asyncio.Task[None]] = set()

    def open(
        self,
        name: str,
        owner: str,
        run: ExchangeRun,
        cancel: Callable[[], None],
        *,
        outlives: bool,
        first: int = 0,
    ) -> KeptStream:
        """One that an exchange fills from now on.

        run       the exchange as an ASGI application
        cancel    ends its work with an error
        outlives  it runs to its end, whoever reads
        first     see `KeptStream`
        """
        seconds = max(self._seconds, BACKGROUND_S) if outlives else self._seconds
        kept = KeptStream(name, owner, seconds, needs_reader=not outlives, first=first)
        kept.on_growth, kept.cancel = self._grow, cancel
        if name in self._found:  # a relay asks again
            self._forget(self._found[name])
        self._found[name] = kept
        task = asyncio.create_task(self._run(kept, run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return kept

    def get(self, name: str, owner: str) -> KeptStream:
        """Raises NotFoundError."""
        kept = self._found.get(name)
        if kept is None or kept.owner != owner:
            raise NotFoundError(
                f"There is no stream {name[:64]!r}, or not any more.",
                hint="Ask again for the answer.",
                code="stream_not_found",
            )
        return kept

    def drop(self, name: str, owner: str) -> None:
        """End it, and forget it; who reads is told. Raises NotFoundError."""
        kept = self.get(name, owner)
        kept.cancel()
        self._forget(kept)

    def enter(self, kept: KeptStream, reader: StreamReading) -> None:
        """One more reads it."""
        kept.readers.add(reader)
        if kept.timer is not None:
            kept.timer.cancel()

    def exit(self, kept: KeptStream, reader: StreamReading) -> None:
        """One reads it no more."""
        kept.readers.discard(reader)
        self._rest(kept)

    async def _run(self, kept: KeptStream, run: ExchangeRun) -> None:
        try:
            await run({WIRE: kept}, kept.receive, kept.send)
        finally:
            kept.end()
            self._rest(kept)

    def _rest(self, kept: KeptStream) -> None:
        """It may be that nobody comes back."""
        if not kept.readers and (kept.is_over or kept.needs_reader) and kept.id in self._found:
            if kept.timer is not None:
                kept.timer.cancel()
            loop = asyncio.get_running_loop()
            kept.timer = loop.call_later(kept.seconds, self._forget, kept)

    def _forget(self, kept: KeptStream) -> None:
        if self._found.get(kept.id) is kept:
            del self._found[kept.id]
            self._bytes -= kept.num_bytes
        if kept.timer is not None:
            kept.timer.cancel()
        if kept.needs_reader and not kept.readers:
            kept.leave()

    def _grow(self, kept: KeptStream, count: int) -> None:
        if self._found.get(kept.id) is not kept:
            return
        kept.num_bytes += count
        self._bytes += count
        while self._bytes > self._most_bytes:
            resting = next((each for each in self._found.values() if _rests(each)), None)
            if resting is not None:
                self._forget(resting)
            else:
                largest = max(self._found.values(), key=lambda each: each.num_bytes)
                self._bytes -= largest.shorten()


class StreamReading:
    """One client that reads a kept stream: an ASGI application."""

    def __init__(self, streams: KeptStreams, kept: KeptStream, number: int) -> None:
        """number: of the first event that it gets. Raises NotFoundError."""
        kept.since(number)
        self._streams, self._kept, self._number = streams, kept, number
        self._wire: Wire | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._has_started = False  # the status was sent

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Tell all from the first event on, until the last one or until the client leaves."""
        kept = self._kept
        self._wire = scope.get(WIRE)
        gone = asyncio.ensure_future(until_gone(receive))
        gone.add_done_callback(lambda _: self.wake())
        self._streams.enter(kept, self)
        try:
            while kept.head is None and not kept.is_over and not gone.done():
                await self._wait()
            if kept.head is None or gone.done():
                return
            await send(kept.head)
            self._has_started = True
            while not gone.done():
                if events := kept.since(self._number):
                    self._number += len(events)
                    await self._send(send, b"".join(events), more=True)
                elif kept.is_over:
                    await self._send(send, b"", more=False)
                    return
                else:
                    await self._wait()
        except NotFoundError:  # it read so slowly that they were dropped
            self.cut()
        finally:
            self._streams.exit(kept, self)
            gone.cancel()
            self._wire = None

    def put(self, told: bytes, number: int, stop: int) -> None:
        """Events from `number` to `stop` come: told at once to who waits for them."""
        waiting, wire = self._waiting, self._wire
        if waiting is None or waiting.done():
            return
        is_next = self._has_started and number == self._number
        if is_next and wire is not None and wire.is_clear:
            wire.write(told)
            self._number = stop
        else:
            waiting.set_result(None)

    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def cut(self) -> None:
        """End its connection, so that it takes nothing for whole."""
        if self._wire is not None:
            self._wire.cut()

    async def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        await self._waiting
        self._waiting = None

    async def _send(self, send: Any, body: bytes, *, more: bool) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": more})


def number_after(text: str, param: str = "after") -> int:
    """Of the event behind one that is told by its id; the first one where none is. Raises
    RequestError."""
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise RequestError(f"{param} must be the id of an event, a whole number.", param=param)
    return int(text) + 1


def _rests(kept: KeptStream) -> bool:
    return kept.is_over and not kept.readers


def _nothing(_: KeptStream, __: int) -> None:
    """Nobody counts its bytes."""
