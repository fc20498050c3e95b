"""A worker in the charge of its replica: started, awaited, watched, drained.

    start -> ready callback -> heartbeats ... -> drain -> gone
                 |                 |
                 +--> it leaves ---+--> its last words are an error

The worker is a process of its own, so an abort in native code ends it and not what watches it. It
leaves with the replica's process, however that ends: the replica holds its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import time
from collections import deque
from typing import Any

from worker.errors import BackendError
from worker.fleet.need import Need
from worker.fleet.reports import ReadyWord, Reports
from worker.options import OPTIONS
from worker.service.front.connections import default_connections
from worker.service.front.http import server_of
from worker.service.server import LAST_BYTES_S, bind

HEARTBEAT_S = 1.0
# Heartbeats come each second from a thread of their own; what is silent for so long is stopped or
# has no CPU.
SILENCE_S = 5.0
_KEY = "LLAMA_API_KEY"
_LOOPBACK = "127.0.0.1"
_LAST_LINES = 5


class WorkerGoneError(BackendError):
    """The worker left, or says nothing any more; its replica has to be made anew."""

    default_code = "WORKER_GONE"


class Charge:
    """One worker process."""

    def __init__(self, need: Need, host: str, command: tuple[str, ...]) -> None:
        """host: the address on which the worker listens; command: of this Python"""
        self._need = need
        self._host = host
        self._command = command
        self._key = secrets.token_urlsafe(32)
        self._reports = Reports()
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._tasks: list[asyncio.Task[Any]] = []
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> ReadyWord:
        """Start the worker and wait until it is ready. Raises WorkerGoneError."""
        sock = bind(_LOOPBACK, 0)
        server = server_of(self._reports, default_connections())
        self._tasks.append(asyncio.create_task(server.serve(sockets=[sock])))
        base = f"http://{_LOOPBACK}:{sock.getsockname()[1]}/{self._reports.secret}"
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, *self._command, "serve", *self._arguments(base)),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment(),
            start_new_session=True,  # signals of a terminal are for the fleet
        )
        self._tasks.append(asyncio.create_task(self._read(self.process)))
        gone = asyncio.ensure_future(self.process.wait())
        ready = self._reports.ready
        await asyncio.wait({gone, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            raise await self._gone()
        gone.cancel()
        return ready.result()

    @property
    def key(self) -> str:
        """What the worker asks of the gateway."""
        return self._key

    async def left(self) -> WorkerGoneError:
        """Wait until the worker has left by itself: why, as far as it said."""
        if self.process is not None:
            await self.process.wait()
        return await self._gone()

    def check(self) -> None:
        """Raise WorkerGoneError where the worker is not well. One that hangs is killed: its streams
        would never end, and draining it would be to wait for nothing."""
        process, silent = self.process, time.monotonic() - self._reports.heard
        if process is None or process.returncode is not None:
            raise WorkerGoneError("The worker has left.")
        if silent <= SILENCE_S and self._reports.health != "stalled":
            return
        process.kill()
        if silent > SILENCE_S:
            raise WorkerGoneError(f"The worker says nothing since {silent:.1f} s.")
        raise WorkerGoneError("The worker's engine is stalled.")

    async def drain(self) -> None:
        """Let the worker finish its streams, for as long as its drain time is; it is gone then."""
        process = self.process
        if process is not None and process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._need.drain + 2 * LAST_BYTES_S):
                    await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
        for task in self._tasks:
            task.cancel()

    async def _gone(self) -> WorkerGoneError:
        for task in self._tasks[1:]:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(task, 1)
        code = self.process.returncode if self.process is not None else None
        last = self._lines[-1] if self._lines else "it said nothing"
        return WorkerGoneError(f"The worker left with code {code}: {last}")

    def _arguments(self, base: str) -> list[str]:
        need = self._need
        return [
            *(("--model", need.file) if need.file else ()),
            *need.options,
            "--alias", need.model,
            "--host", self._host,
            "--port", "0",
            "--callback-url", f"{base}/ready",
            "--heartbeat-url", f"{base}/beat",
            "--heartbeat-interval", f"{HEARTBEAT_S:g}",
            "--die-with-parent", "stdin",
            "--no-page",
            "--log-format", "json",
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        """This process's, without options: the plan did not see those."""
        ours = {name for option in OPTIONS for name in option.variables}
        kept = {name: value for name, value in os.environ.items() if name not in ours}
        kept.pop("OMP_NUM_THREADS", None)  # Ray sets it; --threads says how many
        return {**kept, _KEY: self._key}

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Pass on what the worker logs, to where this process logs."""
        assert process.stderr is not None
        async for line in process.stderr:
            text = line.decode("utf-8", "replace")
            self._lines.append(text.strip())
            sys.stderr.write(text)
