"""A start with memory to spare has the plan that llama.cpp's own sizes make, once nobody asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from tests.support import http
from tests.support.models import ggufs
from tests.support.programs.processes import ended, serving
from worker import log
from worker.errors import ModelLoadError
from worker.lifecycle import asked_plan
from worker.lifecycle.asked_plan import ask_when_idle
from worker.lifecycle.buffers import asking
from worker.lifecycle.prepared import Prepared, prepare
from worker.lifecycle.worker import Worker
from worker.memory.contexts import AskBuffers, ContextBytes, Wanted
from worker.memory.plan import MemoryPlan, estimate
from worker.settings import Settings

SETTINGS = Settings(ctx_size=4096, threads=1)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_plan, "_QUIET_S", (0.0, 0.0))


@pytest.fixture
def ample(tmp_path: Path) -> Prepared:
    """What such a start prepares."""
    prepared = prepare(ggufs.write_llama(tmp_path / "m.gguf"), SETTINGS)
    assert not prepared.plan.is_asked
    return prepared


@pytest.fixture
def asked(ample: Prepared) -> MemoryPlan:
    """What llama.cpp's sizes make of it in the same memory."""
    with asking(ample.config) as ask:
        return estimate(ample.config, SETTINGS, ample.memory, ask=ask)


def answer_by(monkeypatch: pytest.MonkeyPatch, answer: AskBuffers) -> None:
    """Let it stand for llama.cpp."""

    @contextlib.contextmanager
    def fake(*_: object) -> Generator[AskBuffers]:
        yield answer

    monkeypatch.setattr(asked_plan, "asking", fake)


def found(prepared: Prepared, is_idle: Callable[[], bool] = lambda: True) -> MemoryPlan:
    return asyncio.run(ask_when_idle(prepared, SETTINGS, is_idle))


def test_the_plan_that_was_asked_for(ample: Prepared, asked: MemoryPlan) -> None:
    """It is made of the memory that was free at the start, and is asked for once."""
    assert found(ample) == asked
    assert asked.is_asked
    assert found(replace(ample, plan=asked), pytest.fail) is asked


def test_nothing_is_asked_while_a_request_runs(
    ample: Prepared, asked: MemoryPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes between two questions ends them; they are asked again once it has ended."""
    seen, real = list[bool](), asked_plan.asking
    idle = iter([False, False, True, True, True, False, False])

    def is_idle() -> bool:
        seen.append(next(idle, True))
        return seen[-1]

    @contextlib.contextmanager
    def watched(*given: Any) -> Generator[AskBuffers]:
        with real(*given) as ask:

            def ask_and_look(wanted: Wanted) -> ContextBytes:
                assert seen[-1]
                return ask(wanted)

            yield ask_and_look

    monkeypatch.setattr(asked_plan, "asking", watched)
    assert found(ample, is_idle) == asked
    assert seen.count(False) == 4
    assert next(idle, None) is None


def test_no_answer(ample: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate stays, and the log says why."""

    def refuse(_: Wanted) -> ContextBytes:
        raise ModelLoadError("It is broken.", hint="Mend it.")

    answer_by(monkeypatch, refuse)
    log.configure("console")
    with capture_logs() as lines:
        assert found(ample) is ample.plan
    log.configure("console", "error")
    assert [line["reason"] for line in lines] == ["It is broken. Mend it."]


def test_an_answer_that_would_decide_otherwise(
    ample: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The context that is there is not the one that follows: the plan stays, and the log says
    so."""

    def keep_states(wanted: Wanted) -> ContextBytes:
        return ContextBytes(wanted.num_cells * 512, 0, 1 << 50)

    answer_by(monkeypatch, keep_states)
    log.configure("console")
    with capture_logs() as lines:
        assert found(replace(ample, memory=replace(ample.memory, available=1 << 30))) is ample.plan
    log.configure("console", "error")
    assert [line["event"] for line in lines] == ["the estimated plan is kept"]


async def _sleep(worker: Worker) -> None:
    assert worker.sleeper is not None
    await worker.sleeper.sleep()


async def _stop(worker: Worker) -> None:
    await worker.drain()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


@pytest.mark.parametrize("leave", [_sleep, _stop])
def test_a_worker_that_leaves_while_it_asks(
    leave: Callable[[Worker], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps or stops without the answer, and asks nothing more; awake it asks again."""
    path = ggufs.write_llama(tmp_path / "m.gguf")
    begun, go_on, real = threading.Event(), threading.Event(), asked_plan.asking
    threads = list[threading.Thread]()

    def wait(wanted: Wanted) -> ContextBytes:
        threads.append(threading.current_thread())
        begun.set()
        go_on.wait()
        return ContextBytes(wanted.num_cells, 0, 1)

    async def run() -> None:
        worker = Worker(SETTINGS, path)
        beside: asyncio.Future[None] = asyncio.Future()
        beside.set_result(None)
        answer_by(monkeypatch, wait)
        await worker.load(beside)
        await asyncio.to_thread(begun.wait)
        plan = worker.loaded.plan
        await leave(worker)
        monkeypatch.setattr(asked_plan, "asking", real)
        go_on.set()
        if leave is _sleep:
            assert worker.sleeper is not None
            await worker.sleeper.wake()
            while not worker.loaded.plan.is_asked:
                await asyncio.sleep(0.01)
            await worker.drain()
        else:
            assert worker.loaded.plan is plan
        worker.close()

    asyncio.run(run())  # which waits for the thread
    assert len(threads) == 1


def test_a_worker_has_the_plan_of_worker_plan(tmp_path: Path) -> None:
    """To the byte, and the log and the view of requests have it."""
    path = ggufs.write_llama(tmp_path / "m.gguf")
    planned = json.loads(ended("plan", "--json", str(path)).stdout)
    assert planned["is_asked"]
    with serving("--model", path) as server:
        line = server.wait_for("plan")
        assert (line["planned_mb"], line["asked"]) == (round(planned["total_bytes"] / 1e6), True)
        memory = http.get(server.url + "/v1/requests").json()["worker"]["memory"]
    assert memory["planned_bytes"] == planned["total_bytes"]
