"""Jobs that nobody reads do not live for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.support.fakes import FakeBackend
from worker.api.intake.generation import Generation
from worker.api.intake.prompts import TextPrompt
from worker.api.jobs.registry import Jobs
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams
from worker.engine.stream import Stream
from worker.engine.thread import EngineThread
from worker.errors import CancelledError, NotFoundError, WorkerError

ASKED = Generation(
    prompts=(TextPrompt((1, 2, 3), text="abc"),), params=GenerationParams(max_tokens=40)
)


def thread() -> EngineThread:
    """An engine that has not begun to step: what it accepts keeps running."""

    def fail(error: WorkerError) -> None:
        raise error

    return EngineThread(Engine(FakeBackend(), time.monotonic), 8, fail)


def submitted(engine: EngineThread) -> Stream:
    return engine.submit(ASKED.requests())


async def until(condition: Callable[[], bool]) -> None:
    """Poll with a deadline."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def test_unread_job_is_aborted_and_forgotten() -> None:
    """After its time an unread job holds no slot and no name."""

    async def scenario() -> None:
        engine, jobs = thread(), Jobs(timeout=60, unread=0.02)
        job = jobs.open("a", read=False)
        jobs.run(job, ASKED, submitted(engine))
        assert (len(jobs), engine.num_streams) == (1, 1)
        await until(lambda: len(jobs) == 0)
        assert engine.num_streams == 0
        with pytest.raises(NotFoundError):
            jobs.read("a")

    asyncio.run(scenario())


def test_job_that_is_read_stays() -> None:
    """A job that is read is not forgotten as unread."""

    async def scenario() -> None:
        engine, jobs = thread(), Jobs(timeout=60, unread=0.02)
        kept = jobs.open("kept", read=False)
        jobs.run(kept, ASKED, submitted(engine))
        jobs.read("kept")
        other = jobs.open("other", read=False)
        jobs.run(other, ASKED, submitted(engine))
        await until(lambda: len(jobs) == 1)
        assert engine.num_streams == 1
        jobs.forget(kept)
        jobs.forget(kept)
        assert (len(jobs), engine.num_streams) == (0, 0)

    asyncio.run(scenario())


def test_cancelled_while_it_is_prepared() -> None:
    """A job that is cancelled before the engine has it never runs; its reader is told."""

    async def scenario() -> None:
        engine, jobs = thread(), Jobs(timeout=60)
        job = jobs.open("a", read=True)
        assert jobs.cancel("a")
        stream = jobs.run(job, ASKED, submitted(engine))
        assert engine.num_streams == 0
        with pytest.raises(CancelledError):
            await stream.take()

    asyncio.run(scenario())
