"""The worker of a long run, and what it holds when nobody asks for anything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import subprocess
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from benchmarks.peers.processes import last_lines, started
from checks.soak.wire import Wire

START_S = 120.0
QUIET_S = 30.0  # after which what still runs is told as left over
_LOOK_S = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")


class DraftSlot(msgspec.Struct, frozen=True):
    """What a worker holds while nobody asks.

    seconds           of the run
    clients           that came so far
    anonymous         bytes of memory that no file stands behind
    resident          bytes, files that are mapped among them
    descriptors, threads  of the process
    live_cells, running, waiting, requests  of the engine, and what /v1/requests lists
    cache_bytes, disk_bytes  states kept in memory, and on disk as the worker counts them
    folder_bytes, folder_files  what is really in the cache's folder
    temp_files        in the folder for temporary files
    cpu_s             CPU time of the worker so far
    """

    seconds: float
    clients: int
    anonymous: int
    resident: int
    descriptors: int
    threads: int
    live_cells: int
    running: int
    waiting: int
    requests: int
    cache_bytes: int
    disk_bytes: int
    folder_bytes: int
    folder_files: int
    temp_files: int
    cpu_s: float


class Soaked:
    """A worker that runs; `folder` holds its cache, its temporary files and its log."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, folder: Path) -> None:
        self.process, self.pid, self.folder = process, process.pid, folder
        parts = urlsplit(url)
        self.host, self.port = str(parts.hostname), int(parts.port or 0)
        self._begun = time.monotonic()

    @property
    def last_words(self) -> str:
        """How it ended, and the end of its log; "" while it runs."""
        code = self.process.poll()
        return "" if code is None else f"exit code {code}: {last_lines(self.folder / 'log')}"

    async def held(self, clients: int, settle: float) -> DraftSlot:
        """`settle` seconds after nothing runs any more, or after QUIET_S. Raises OSError."""
        deadline = time.monotonic() + QUIET_S
        while True:
            numbers = await self._numbers()
            busy = any(numbers[name] for name in ("live_cells", "running", "waiting", "requests"))
            if not busy or time.monotonic() > deadline:
                break
            await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(settle)
        sizes = list(_sizes(self.folder / "cache"))
        memory = memory_of(self.pid)
        return DraftSlot(
            seconds=round(time.monotonic() - self._begun, 3),
            clients=clients,
            anonymous=memory["Anonymous"],
            resident=memory["Rss"],
            descriptors=_count(f"/proc/{self.pid}/fd"),
            threads=_count(f"/proc/{self.pid}/task"),
            folder_bytes=sum(sizes),
            folder_files=len(sizes),
            temp_files=len(list((self.folder / "tmp").rglob("*"))),
            cpu_s=cpu_seconds(self.pid),
            **numbers,
        )

    async def _numbers(self) -> dict[str, int]:
        wire = Wire(self.host, self.port)
        try:
            view = (await wire.ask("GET", "/v1/requests")).json()
        finally:
            wire.close()
        now = view["worker"]
        return {
            "live_cells": now["cells"]["live"],
            "running": now["running"],
            "waiting": now["waiting"],
            "requests": len(view["data"]),
            "cache_bytes": now["kept"]["memory_bytes"],
            "disk_bytes": now["kept"]["disk_bytes"],
        }


def _sizes(folder: Path) -> Iterator[int]:
    """Bytes of each file; the worker may still write and remove some."""
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            if stat.S_ISREG(found.st_mode):
                yield found.st_size


def _count(folder: str) -> int:
    return len(list(Path(folder).iterdir()))


def memory_of(pid: int) -> dict[str, int]:
    """Bytes by the names of smaps_rollup, which counts pages; `status` is late by some."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(value.split()[0]) * 1024 for name, value in (x.split(":") for x in lines)}


def cpu_seconds(pid: int) -> float:
    """CPU time of all its threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextlib.asynccontextmanager
async def soaked(
    program: Sequence[str], options: Sequence[str], folder: Path
) -> AsyncGenerator[Soaked]:
    """Start it and wait until it is ready. Raises RuntimeError with its last words."""
    (folder / "tmp").mkdir()
    log = folder / "log"
    command = ["env", f"TMPDIR={folder / 'tmp'}", *program, "serve", *options,
               "--host", "127.0.0.1", "--port", "0", "--log-format", "json",
               "--cache-dir", str(folder / "cache"), "--die-with-parent", "stdin"]  # fmt: skip
    with started(command, log) as process:
        deadline = time.monotonic() + START_S
        while True:
            events = [json.loads(line) for line in log.read_text().splitlines() if line[:1] == "{"]
            told = {event.get("event"): event for event in events}
            if "ready" in told and "listening" in told:
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"The worker did not start:\n{last_lines(log)}")
            await asyncio.sleep(_LOOK_S)
        # `env` has become the worker: the pid is the same.
        yield Soaked(process, told["listening"]["url"], folder)
