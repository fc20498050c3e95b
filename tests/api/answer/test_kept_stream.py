"""What is kept of a stream, for how long, and what its readers get of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from worker.api.answer.kept_stream import KeptStream, KeptStreams, StreamReading, number_after
from worker.errors import NotFoundError, RequestError
from worker.http.connections import WIRE
from worker.http.sse import CONTENT_TYPE

HEAD = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", CONTENT_TYPE)],
}
Scenario = Callable[[], Awaitable[None]]


class Reader:
    """Reads all that comes, over a connection of ours or another server's."""

    def __init__(self, *, has_wire: bool = True) -> None:
        self.is_clear = True
        self.got = b""
        self.num_written = 0
        self.was_cut = False
        self.has_left = asyncio.Event()
        self.scope: dict[str, Any] = {WIRE: self} if has_wire else {}

    def write(self, data: bytes) -> None:
        self.num_written += 1
        self.got += data

    def cut(self) -> None:
        self.was_cut = True

    async def send(self, message: dict[str, Any]) -> None:
        self.got += message.get("body", b"")

    async def receive(self) -> dict[str, str]:
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    def read(self, streams: KeptStreams, kept: KeptStream, number: int = 0) -> asyncio.Task[None]:
        reading = StreamReading(streams, kept, number)
        return asyncio.ensure_future(reading(self.scope, self.receive, self.send))


class Answer:
    """An exchange that tells what a test says. was_left: its client has left"""

    def __init__(self, streams: KeptStreams, name: str = "a", *, outlives: bool = False) -> None:
        self._end = asyncio.Event()
        self.was_left = False
        self.kept = streams.open(name, "me", self._run, self._end.set, outlives=outlives)

    async def _run(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope[WIRE] is self.kept
        await send(HEAD)
        leaving = asyncio.ensure_future(receive())
        ending = asyncio.ensure_future(self._end.wait())
        await asyncio.wait({leaving, ending}, return_when=asyncio.FIRST_COMPLETED)
        self.was_left = leaving.done()
        await send({"type": "http.response.body", "body": b"data: end\n\n"})

    async def end(self) -> None:
        self._end.set()
        await turns()


async def turns() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


def events(*numbers: int) -> bytes:
    return b"".join(b"id: %d\ndata: %d\n\n" % (n, n) for n in numbers)


def told(*numbers: int) -> bytes:
    return b"".join(b"data: %d\n\n" % n for n in numbers)


@pytest.mark.parametrize("has_wire", [True, False])
def test_readers_from_any_event(*, has_wire: bool) -> None:
    """Each gets what is kept from there, then what comes; comments go by those who wait."""

    async def scenario() -> None:
        streams = KeptStreams(100)
        answer = Answer(streams)
        first, later, beyond = (Reader(has_wire=has_wire) for _ in range(3))
        reading = [first.read(streams, answer.kept)]
        await turns()
        answer.kept.write(told(0))
        await turns()
        answer.kept.write(b":\n\n" + told(1, 2))
        reading += [later.read(streams, answer.kept, 2), beyond.read(streams, answer.kept, 4)]
        await turns()
        answer.kept.write(told(3))
        answer.kept.write(told(4))
        await answer.end()
        await asyncio.gather(*reading)
        end = b"id: 5\ndata: end\n\n"
        comment = b":\n\n" if has_wire else b""
        assert first.got == events(0) + comment + events(1, 2, 3, 4) + end
        assert later.got == events(2, 3, 4) + end
        assert beyond.got == events(4) + end
        assert bool(first.num_written) == has_wire

    asyncio.run(scenario())


def test_the_oldest_go() -> None:
    """Beyond the bytes first answers that nobody reads, then the beginnings of those that run; who
    asks for these hears so, who still reads them is cut."""

    async def scenario() -> None:
        streams = KeptStreams(100, most_bytes=3_000)
        done, runs = Answer(streams, "done"), Answer(streams, "runs")
        await turns()
        done.kept.write(told(0))
        await done.end()
        slow = Reader()
        slow.is_clear = False
        reading = slow.read(streams, runs.kept)
        await turns()
        for number in range(40):
            runs.kept.write(told(number))
        with pytest.raises(NotFoundError):
            streams.get("done", "me")
        kept = streams.get("runs", "me")
        assert kept.first > 0
        assert b"".join(kept.since(kept.first)) == events(*range(kept.first, 40))
        with pytest.raises(NotFoundError):
            StreamReading(streams, kept, kept.first - 1)
        await reading
        assert slow.was_cut

    asyncio.run(scenario())


@pytest.mark.parametrize("outlives", [True, False])
def test_without_readers(*, outlives: bool) -> None:
    """Its exchange hears that its client has left, unless it outlives all of them."""

    async def scenario() -> None:
        streams = KeptStreams(0)
        answer, reader = Answer(streams, outlives=outlives), Reader()
        reading = reader.read(streams, answer.kept)
        await turns()
        reader.has_left.set()
        await reading
        await asyncio.sleep(0.001)  # the loop's timer of no seconds
        await turns()
        assert answer.was_left is not outlives
        if outlives:
            assert streams.get("a", "me") is answer.kept

    asyncio.run(scenario())


def test_who_may_end_it() -> None:
    """Its owner: readers are told, and it is gone."""

    async def scenario() -> None:
        streams = KeptStreams(100)
        answer, reader = Answer(streams), Reader()
        reading = reader.read(streams, answer.kept)
        await turns()
        with pytest.raises(NotFoundError):
            streams.drop("a", "another")
        streams.drop("a", "me")
        await reading
        assert reader.got == b"id: 0\ndata: end\n\n"
        with pytest.raises(NotFoundError):
            streams.get("a", "me")

    asyncio.run(scenario())


@pytest.mark.parametrize("text", ["-1", "one", "1.5", "٣", "9" * 10])
def test_ids_are_whole_numbers(text: str) -> None:
    """Nothing else; nothing at all is the beginning."""
    assert (number_after(""), number_after("7")) == (0, 8)
    with pytest.raises(RequestError):
        number_after(text)
