"""A stream's events in order, whichever way they go to the connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from worker.api.answer.exchange import DeltaExchange
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.http.connections import WIRE

TEXTS = ("a", "b", "c", "d", "e")


class Letters(DeltaExchange):
    """An event for each delta. What is said of "!" fails."""

    closing = b"[closed]"

    def frames_of(self, delta: Delta) -> list[bytes]:
        if delta.text == "!":
            raise ValueError("cannot be told")
        return [delta.text.encode()]

    def last_frames(self) -> list[bytes]:
        return [b"[last]"]

    def take(self, delta: Delta) -> object:
        raise NotImplementedError

    def whole(self) -> object:
        raise NotImplementedError

    def failure(self, error: Exception) -> bytes:
        return b"[failed]"


class Client:
    """Reads what an exchange sends or writes, until it is told to leave."""

    def __init__(self, *, is_clear: bool = True) -> None:
        self.sent: list[bytes] = []
        self.written: list[bytes] = []
        self.got = b""
        self.wire = SimpleNamespace(is_clear=is_clear, write=self.write)

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self.got += data

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message.get("body", b""))
        self.got += message.get("body", b"")

    async def receive(self) -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def streamed(client: Client, texts: tuple[str, ...], *, has_wire: bool = True) -> Stream:
    """Each text comes when the one before has been told; then the end."""
    stream = Stream(["a"], lambda _: None)
    exchange = Letters(stream, streaming=True)
    scope = {WIRE: client.wire} if has_wire else {}
    answering = asyncio.create_task(exchange(scope, client.receive, client.send))
    for text in texts:
        await turns()
        stream.put(Delta("a", text))
    await turns()
    stream.put(Delta("a", "z", finish_reason="stop"))
    await answering
    return stream


def test_straight_to_the_connection() -> None:
    """The first and the last event are sent with what goes around them, the others are written."""
    client = Client()
    stream = asyncio.run(streamed(client, TEXTS))
    assert client.got == b"abcdez[last][closed]"
    assert client.written == [b"b", b"c", b"d", b"e"]
    assert stream.direct is None


@pytest.mark.parametrize(("is_clear", "has_wire"), [(False, True), (True, False)])
def test_a_slow_client_or_another_server(*, is_clear: bool, has_wire: bool) -> None:
    """What must wait, or has no connection of ours, is sent."""
    client = Client(is_clear=is_clear)
    asyncio.run(streamed(client, TEXTS, has_wire=has_wire))
    assert client.got == b"abcdez[last][closed]"
    assert not client.written


def test_many_at_once() -> None:
    """Deltas that come before the reader waits again keep their order."""
    client = Client()

    async def scenario() -> None:
        stream = Stream(["a"], lambda _: None)
        exchange = Letters(stream, streaming=True)
        for text in TEXTS[:2]:
            stream.put(Delta("a", text))
        answering = asyncio.create_task(exchange({WIRE: client.wire}, client.receive, client.send))
        await turns()
        for text in TEXTS[2:]:
            stream.put(Delta("a", text))
        stream.put(Delta("a", "z", finish_reason="stop"))
        await answering

    asyncio.run(scenario())
    assert client.got == b"abcdez[last][closed]"


def test_several_tokens_in_one_part() -> None:
    """What comes at once is written at once, an event for each."""
    client = Client()

    async def scenario() -> None:
        stream = Stream(["a"], lambda _: None)
        exchange = Letters(stream, streaming=True)
        answering = asyncio.create_task(exchange({WIRE: client.wire}, client.receive, client.send))
        await turns()
        stream.put(Delta("a", TEXTS[0]))
        await turns()
        stream.put(*(Delta("a", text) for text in TEXTS[1:]))
        stream.put(Delta("a", "z", finish_reason="stop"))
        await answering

    asyncio.run(scenario())
    assert client.got == b"abcdez[last][closed]"
    assert client.written == [b"bcde"]


def test_what_cannot_be_told() -> None:
    """Its own stream ends with an error, as anywhere else."""
    client = Client()
    asyncio.run(streamed(client, ("a", "b", "!")))
    assert client.got == b"ab[failed][closed]"


def test_who_leaves_ends_its_work_alone() -> None:
    """The stream is closed and the call returns; who cancels the call from outside hears of it."""

    async def scenario() -> None:
        client = Client()
        aborted: list[str] = []
        stream = Stream(["a"], aborted.append)
        left = asyncio.Event()

        async def receive() -> dict[str, str]:
            await left.wait()
            return {"type": "http.disconnect"}

        exchange = Letters(stream, streaming=True)
        answering = asyncio.create_task(exchange({}, receive, client.send))
        await turns()
        left.set()
        await answering
        assert aborted == ["a"]
        assert not answering.cancelling()

        exchange = Letters(Stream(["b"], aborted.append), streaming=True)
        answering = asyncio.create_task(exchange({}, client.receive, client.send))
        await turns()
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        assert aborted == ["a", "b"]

    asyncio.run(scenario())
