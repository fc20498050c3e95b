"""A worker in the charge of its replica, without Ray."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gguf_fleet.charge import Charge, WorkerGoneError
from gguf_fleet.need import Need
from gguf_fleet.reports import ReadyWord
from tests.support import http
from tests.support.programs import SLOW, WORKER, demo_model

OPTIONS = ("-t", "1", "-c", "2048", "--cache-ram", "0", "--drain-timeout", "60")


def need(file: str = "", *options: str) -> Need:
    """What the demo model needs."""
    return Need(
        model="demo", file=file, replicas=1, affinity="none", cpus=1, memory=0, num_cells=2048,
        num_slots=4, queue=64, drain=60, options=(*OPTIONS, *options),
    )  # fmt: skip


@asynccontextmanager
async def charged(command: tuple[str, ...] = WORKER) -> AsyncGenerator[tuple[Charge, ReadyWord]]:
    """A worker that is ready; gone afterwards."""
    charge = Charge(need(), "127.0.0.1", command)
    try:
        yield charge, await charge.start()
    finally:
        if charge.process is not None and charge.process.returncode is None:
            charge.process.kill()
        await charge.drain()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it on an event loop."""
    asyncio.run(test())


async def status_of(url: str, key: str | None = None) -> int:
    """The status of GET /slots."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return (await asyncio.to_thread(http.get, url + "/slots", headers=headers)).status_code


async def until(true: Callable[[], bool]) -> None:
    """Poll until `true()`."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.02)


def test_a_ready_worker_asks_for_the_key_of_its_charge() -> None:
    """The key is in no command line; all is well once heartbeats come; draining ends it with 0."""

    async def test() -> None:
        async with charged() as (charge, ready):
            assert charge.process is not None
            assert ready.pid == charge.process.pid
            assert await status_of(ready.url) == 401
            assert await status_of(ready.url, charge.key) == 200
            assert charge.key not in Path(f"/proc/{ready.pid}/cmdline").read_text()
            await until(lambda: bool(charge._reports.health))  # pyright: ignore[reportPrivateUsage]
            charge.check()
            await charge.drain()
            assert charge.process.returncode == 0

    run(test)


def test_draining_lets_streams_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun is answered to its end, then the worker is gone."""
    monkeypatch.setenv("STEP_SECONDS", "0.02")

    async def test() -> None:
        async with charged(SLOW) as (charge, ready):
            headers = {"authorization": f"Bearer {charge.key}"}
            body = {"prompt": "Once", "max_tokens": 60, "ignore_eos": True}
            answer = asyncio.create_task(
                asyncio.to_thread(
                    http.post, ready.url + "/v1/completions", json=body, headers=headers
                )
            )
            slots = lambda: http.get(ready.url + "/health").json()["slots_processing"]  # noqa: E731
            while await asyncio.to_thread(slots) == 0:
                await asyncio.sleep(0.01)
            await charge.drain()
            assert (await answer).json()["usage"]["completion_tokens"] == 60

    run(test)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_worker_that_is_lost_is_started_again(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """At the same address and with the same key; one that says nothing is killed before."""

    async def test() -> None:
        async with charged() as (charge, ready):
            keeping = asyncio.create_task(charge.keep())
            os.kill(ready.pid, number)
            if number is signal.SIGSTOP:
                monkeypatch.setattr("gguf_fleet.charge.SILENCE_S", -1.0)
            await until(lambda: charge.process is not None and charge.process.pid != ready.pid)
            monkeypatch.undo()
            await until(charge._reports.ready.done)  # pyright: ignore[reportPrivateUsage]
            charge.check()
            assert await status_of(ready.url, charge.key) == 200
            await charge.drain()
            assert "left with code 0" in str(await keeping)

    run(test)


def test_a_worker_that_dies_often_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last words are why, and the check fails from then on."""
    monkeypatch.setattr("gguf_fleet.charge.RESTARTS", 1)

    async def test() -> None:
        async with charged() as (charge, ready):
            keeping = asyncio.create_task(charge.keep())
            os.kill(ready.pid, signal.SIGKILL)
            await until(lambda: charge.process is not None and charge.process.pid != ready.pid)
            assert charge.process is not None
            await until(charge._reports.ready.done)  # pyright: ignore[reportPrivateUsage]
            charge.check()
            os.kill(charge.process.pid, signal.SIGKILL)
            assert "left with code -9" in str(await keeping)
            with pytest.raises(WorkerGoneError, match="left with code -9"):
                charge.check()

    run(test)


def test_a_worker_that_does_not_come_up_again_is_left(tmp_path: Path) -> None:
    """What was wrong with its file is said once, and nobody tries again."""
    file = tmp_path / "model.gguf"
    shutil.copyfile(demo_model(), file)

    async def test() -> None:
        charge = Charge(need(str(file)), "127.0.0.1", WORKER)
        try:
            ready = await charge.start()
            file.unlink()
            os.kill(ready.pid, signal.SIGKILL)
            assert "left with code 1: error: " in str(await charge.keep())
        finally:
            await charge.drain()

    run(test)


def test_a_worker_that_does_not_start_says_why() -> None:
    """Its last line, with its exit code."""

    async def test() -> None:
        charge = Charge(need("nobody-has-this.gguf"), "127.0.0.1", WORKER)
        with pytest.raises(WorkerGoneError) as raised:
            await charge.start()
        await charge.drain()
        assert "left with code 1: error: " in str(raised.value)
        assert "nobody-has-this.gguf" in str(raised.value)

    run(test)


def test_options_of_the_machine_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan did not see them."""
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "many")

    async def test() -> None:
        async with charged() as (charge, ready):
            assert await status_of(ready.url, charge.key) == 200

    run(test)
