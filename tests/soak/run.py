"""One long run: the worker, its manager, its clients, and a look at it now and then."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import msgspec

from tests.soak.load import Load
from tests.soak.manager import FailingManager
from tests.soak.soaked import Held, soaked

# Small, so that all that has a limit is full within the first minutes.
OPTIONS = ("--ctx-size", "2048", "--parallel", "4", "--queue-size", "8", "--threads", "1",
           "--cache-ram", "16", "--cache-disk", "64", "--heartbeat-interval", "1")  # fmt: skip
DISK_LIMIT = 64 << 20


class SoakPlan(msgspec.Struct, frozen=True):
    """What is run: the first line of a file of samples.

    program   what starts the worker
    model     None: the embedded demo model
    rate      clients a second, while they do not rest
    every     seconds from one sample to the next
    """

    program: list[str]
    model: str | None
    minutes: float
    rate: float
    every: float
    seed: int
    options: tuple[str, ...] = OPTIONS


class Soak(msgspec.Struct):
    """What has come of it so far."""

    plan: SoakPlan
    samples: list[Held] = []
    came: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    heartbeats: Counter[str] = Counter()


async def run(plan: SoakPlan, tell: Callable[[Soak], None], out: TextIO | None) -> Soak:
    """All of it. `tell` is called after each sample; `out` gets a line of JSON for each."""
    soak = Soak(plan)
    _write(out, msgspec.to_builtins(plan))
    manager = FailingManager()
    await manager.start()
    options = [*plan.options, "--callback-url", f"http://127.0.0.1:{manager.port}/ready",
               "--heartbeat-url", f"http://127.0.0.1:{manager.port}/beat"]  # fmt: skip
    if plan.model is not None:
        options += ["--model", plan.model]
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        try:
            async with soaked(plan.program, options, Path(place), {}) as worker:
                load = Load(worker.host, worker.port, plan.rate, plan.seed)
                soak.came, soak.wrong, soak.heartbeats = load.came, load.wrong, manager.told
                coming = asyncio.ensure_future(load.run())
                ends = time.monotonic() + plan.minutes * 60
                try:
                    while True:
                        now = time.monotonic()
                        await load.rest()
                        soak.samples.append(await worker.held(load.num_begun))
                        counts = {
                            "clients_cpu_s": time.process_time(),
                            "came": load.came,
                            "wrong": load.wrong,
                            "told": manager.told,
                        }
                        _write(out, msgspec.to_builtins(soak.samples[-1]) | counts)
                        tell(soak)
                        if now >= ends:
                            break
                        load.go_on()
                        left = min(now + plan.every, ends) - time.monotonic()
                        await asyncio.sleep(max(left, plan.every / 4))
                except (OSError, KeyError, ValueError) as error:
                    load.wrong[f"the worker is gone: {type(error).__name__}: {error}"] += 1
                finally:
                    coming.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await coming
        finally:
            await manager.stop()
    return soak


def _write(out: TextIO | None, line: object) -> None:
    if out is not None:
        out.write(msgspec.json.encode(line).decode() + "\n")
        out.flush()
