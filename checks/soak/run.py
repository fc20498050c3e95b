"""One long run: the worker, its manager, its clients, and a look at it now and then."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import msgspec

from checks.soak.load import Load
from checks.soak.manager import FailingManager
from checks.soak.soaked import DraftSlot, soaked
from checks.soak.verdict import MB

CACHE_DISK_MIB = 64
# Small, so that all that has a limit is full within the first minutes.
OPTIONS = ("--ctx-size", "2048", "--parallel", "4", "--queue-size", "8", "--threads", "1",
           "--cache-ram", "16", "--cache-disk", str(CACHE_DISK_MIB),
           "--heartbeat-interval", "1")  # fmt: skip
DISK_LIMIT = CACHE_DISK_MIB << 20


class SoakPlan(msgspec.Struct, frozen=True):
    """What is run: the first line of a file of samples.

    program  what starts the worker
    model    None: the embedded demo model
    rate     clients a second, while they do not rest
    every    seconds from one sample to the next
    settle   seconds from when nothing runs to the look
    least    samples that there are, however long they take
    """

    program: list[str]
    model: str | None
    minutes: float
    rate: float
    every: float
    seed: int
    options: tuple[str, ...] = OPTIONS
    settle: float = 0.3
    least: int = 2


class Soak(msgspec.Struct):
    """What has come of it so far.

    came, wrong    what became of clients; what must not have become of any
    told           heartbeats by the answer that they got
    clients_cpu_s  CPU time of the clients and the manager
    """

    plan: SoakPlan
    samples: list[DraftSlot] = []
    came: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    told: Counter[str] = Counter()
    clients_cpu_s: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Soak:
        """What a run has written so far."""
        first, *lines = [json.loads(line) for line in path.read_text().splitlines()]
        soak = cls(msgspec.convert(first, SoakPlan), msgspec.convert(lines, list[DraftSlot]))
        if lines:
            soak.came, soak.wrong, soak.told = (
                Counter(lines[-1][name]) for name in ("came", "wrong", "told")
            )
            soak.clients_cpu_s = lines[-1]["clients_cpu_s"]
        return soak

    def write(self, out: TextIO) -> None:
        """Add the last sample, and the plan before the first, as a line of JSON."""
        if len(self.samples) == 1:
            out.write(msgspec.json.encode(self.plan).decode() + "\n")
        counts = {name: getattr(self, name) for name in ("came", "wrong", "told", "clients_cpu_s")}
        line = msgspec.to_builtins(self.samples[-1]) | counts
        out.write(msgspec.json.encode(line).decode() + "\n")
        out.flush()


async def run(plan: SoakPlan, tell: Callable[[Soak], None]) -> Soak:
    """All of it. `tell` is called after each sample. Raises RuntimeError: no worker started."""
    soak = Soak(plan)
    manager = FailingManager()
    await manager.start()
    address = f"http://127.0.0.1:{manager.port}"
    options = [*plan.options, "--callback-url", f"{address}/ready",
               "--heartbeat-url", f"{address}/beat"]  # fmt: skip
    if plan.model is not None:
        options += ["--model", plan.model]
    try:
        with tempfile.TemporaryDirectory(prefix="soak-") as place:
            async with soaked(plan.program, options, Path(place)) as worker:
                load = Load(worker.host, worker.port, plan.rate, plan.seed)
                soak.came, soak.wrong, soak.told = load.came, load.wrong, manager.told
                coming = asyncio.ensure_future(load.run())
                ends = time.monotonic() + plan.minutes * 60
                began_cpu = time.process_time()
                try:
                    while True:
                        begun = time.monotonic()
                        await load.rest()
                        soak.samples.append(await worker.held(load.num_begun, plan.settle))
                        soak.clients_cpu_s = time.process_time() - began_cpu
                        tell(soak)
                        if begun >= ends and len(soak.samples) >= plan.least:
                            break
                        load.go_on()
                        due = begun + plan.every - time.monotonic()
                        await asyncio.sleep(max(due, plan.every / 2))
                except (OSError, KeyError, ValueError) as error:
                    await asyncio.sleep(1)  # its end may not be told yet
                    words = worker.last_words or f"{type(error).__name__}: {error}"
                    load.wrong[f"the worker is gone: {words}"] += 1
                finally:
                    coming.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await coming
    finally:
        await manager.stop()
    return soak


def sentence(soak: Soak) -> str:
    """How it stands, in a line."""
    now = soak.samples[-1]
    return (
        f"{now.clients} clients, {soak.wrong.total()} wrong; {now.anonymous / MB:.1f} MB, "
        f"{now.descriptors} descriptors, {now.threads} threads"
    )
