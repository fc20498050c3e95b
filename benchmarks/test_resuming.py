"""What a stream that can be picked up costs the event loop for a token.

    pytest benchmarks/test_resuming.py --benchmark-only

The exchange's events go to a connection that takes all, straight or by way of a kept stream with
one reader. The difference is what numbers and the ring cost; it is to be 5 µs at most.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from worker.api.answer.kept_stream import KeptStream, KeptStreams, StreamReading
from worker.http.connections import WIRE
from worker.http.sse import CONTENT_TYPE, frame

_EVENT = frame({"id": "cmpl-0", "choices": [{"text": " word", "index": 0}], "created": 1})
_ROUNDS = 2_000


class Taker:
    """A connection that takes all."""

    is_clear = True

    def __init__(self) -> None:
        self.num_bytes = 0

    def write(self, data: bytes) -> None:
        self.num_bytes += len(data)

    def cut(self) -> None: ...

    async def send(self, message: Any) -> None: ...

    async def receive(self) -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("way", ["straight", "kept"])
def test_an_event(benchmark: Any, way: str) -> None:
    """One event of one token."""
    taker, loop = Taker(), asyncio.new_event_loop()
    tasks: list[asyncio.Future[None]] = []

    async def begin() -> Any:
        if way == "straight":
            return taker.write
        streams = KeptStreams(60)

        async def run(_: Any, receive: Any, send: Any) -> None:
            fields = [(b"content-type", CONTENT_TYPE)]
            await send({"type": "http.response.start", "status": 200, "headers": fields})
            await receive()

        kept = streams.open("a", "", run, lambda: None, outlives=False)
        reading = StreamReading(streams, kept, 0)
        tasks.append(asyncio.ensure_future(reading({WIRE: taker}, taker.receive, taker.send)))
        for _ in range(9):
            await asyncio.sleep(0)
        tasks.append(asyncio.ensure_future(leave(kept)))
        return kept.write

    async def leave(kept: KeptStream) -> None:
        await ended.wait()
        kept.leave()

    ended = asyncio.Event()
    write = loop.run_until_complete(begin())
    benchmark.group = "an event"
    benchmark.pedantic(write, args=(_EVENT,), rounds=_ROUNDS, warmup_rounds=100)
    assert taker.num_bytes >= _ROUNDS * len(_EVENT)
    ended.set()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    loop.close()
