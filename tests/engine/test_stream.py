"""What a reader gets of its requests: all deltas in order, errors after what came before them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.errors import WorkerError


def test_a_reader_that_waits_gets_each_delta_at_once() -> None:
    """One that is late gets all that came meanwhile, in order."""

    async def scenario() -> None:
        stream = Stream(["a"], lambda _: None)
        reading = asyncio.create_task(stream.take())
        await asyncio.sleep(0)
        assert not reading.done()
        stream.put(Delta("a", "one"))
        stream.put(Delta("a", "two"))  # before the reader runs again
        assert [delta.text for delta in await reading] == ["one", "two"]
        stream.put(Delta("a", "three"))
        stream.put(Delta("a", "four", finish_reason="stop"))
        assert [delta.text for delta in await stream.take()] == ["three", "four"]
        assert not stream.is_running

    asyncio.run(scenario())


def test_a_reader_that_gave_up_loses_nothing() -> None:
    """Who waits with a timeout may come back for what has arrived since."""

    async def scenario() -> None:
        stream = Stream(["a"], lambda _: None)
        reading = asyncio.create_task(stream.take())
        await asyncio.sleep(0)
        reading.cancel()
        stream.put(Delta("a", "late"))
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert [delta.text for delta in await stream.take()] == ["late"]

    asyncio.run(scenario())


def test_an_error_comes_after_what_was_before_it() -> None:
    """Of several requests, too."""

    async def scenario() -> None:
        stream = Stream(["a", "b"], lambda _: None)
        stream.put(Delta("a", "kept"))
        stream.put(Delta("b", error=WorkerError("broken")))
        stream.put(Delta("a", "after"))
        assert [delta.text for delta in await stream.take()] == ["kept"]
        with pytest.raises(WorkerError, match="broken"):
            await stream.take()

    asyncio.run(scenario())


def test_a_direct_reader_is_not_woken() -> None:
    """It takes what comes while the reader waits; what it does not take waits for the reader, and
    so does all behind that until the reader waits again."""

    async def scenario() -> None:
        stream = Stream(["a"], lambda _: None)
        taken: list[str] = []

        def direct(deltas: Sequence[Delta]) -> bool:
            texts = [delta.text for delta in deltas]
            if "slow" in texts:
                return False
            taken.extend(texts)
            return True

        stream.direct = direct
        stream.put(Delta("a", "first"))  # nobody waits yet
        assert [delta.text for delta in await stream.take()] == ["first"]
        reading = asyncio.create_task(stream.take())
        await asyncio.sleep(0)
        for text in ("one", "two", "slow", "behind"):
            stream.put(Delta("a", text))
        assert [delta.text for delta in await reading] == ["slow", "behind"]
        assert taken == ["one", "two"]
        reading = asyncio.create_task(stream.take())
        await asyncio.sleep(0)
        stream.put(Delta("a", "three"), Delta("a", "four"))
        stream.put(Delta("a", "last but one"), Delta("a", "end", finish_reason="stop"))
        assert [delta.text for delta in await reading] == ["last but one", "end"]
        assert taken == ["one", "two", "three", "four"]

    asyncio.run(scenario())


def test_what_a_direct_reader_raises_the_reader_gets() -> None:
    """Nobody else's deltas are held up by it."""

    async def scenario() -> None:
        stream = Stream(["a"], lambda _: None)

        def direct(_deltas: Sequence[Delta]) -> bool:
            raise WorkerError("cannot be told")

        stream.direct = direct
        reading = asyncio.create_task(stream.take())
        await asyncio.sleep(0)
        stream.put(Delta("a", "text"))
        with pytest.raises(WorkerError, match="cannot be told"):
            await reading

    asyncio.run(scenario())
