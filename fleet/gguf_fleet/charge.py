"""A worker in the charge of its replica: started, awaited, watched, started again, drained.

    start -> ready callback -> heartbeats ... -> drain -> gone
      ^          |                 |
      |          |                 +--> it leaves, or hangs and is killed --+
      |          +--> it leaves: its last words are an error                |
      +---------------------------------------------------------------------+

The worker is a process of its own, so an abort in native code ends it and not what watches it. It
leaves with the replica's process, however that ends: the replica holds its standard input. One that
is started again has the address of the one before, so nobody has to be told.
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

from gguf_fleet import log
from gguf_fleet.command import Command
from gguf_fleet.errors import FleetError
from gguf_fleet.need import Need
from gguf_fleet.reports import ReadyWord, Reports
from gguf_fleet.said import pass_on, sentence_of

HEARTBEAT_S = 1.0
# Starts of a worker after the first one, in so many seconds: one that leaves more often, or does
# not come up again, may do better on another machine.
RESTARTS = 3
RESTARTS_S = 60.0
_LOOK_S = 0.2
# Heartbeats come each second from a thread of their own; what is silent for so long is stopped or
# has no CPU.
SILENCE_S = 5.0
_KEY = "LLAMA_API_KEY"
# Variables that are options of a worker begin so.
_OPTIONS = (
    "LLAMA_ARG_", "LLAMA_API_KEY", "LLAMA_CHAT_TEMPLATE", "LLORCH_", "RBEE_", "GGUF_WORKER_MODELS",
)  # fmt: skip
# What a worker takes after its drain time: last bytes, and the end of the process.
_LEAVING_S = 1.6
_LAST_LINES = 5


class WorkerGoneError(FleetError):
    """The worker left, and is not started again here; its replica has to be made anew."""

    code = "WORKER_GONE"


class Charge:
    """One worker process."""

    def __init__(self, need: Need, host: str, command: Command) -> None:
        """host: the address on which the worker listens; command: of this Python"""
        self._need = need
        self._host = host
        self._command = command
        self._key = secrets.token_urlsafe(32)
        self._reports = Reports()
        self._base = ""
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._tasks: list[asyncio.Task[Any]] = []
        self._reading: asyncio.Task[None] | None = None
        self._port = 0
        self._is_leaving = False
        self._error: WorkerGoneError | None = None
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> ReadyWord:
        """Start the worker and wait until it is ready. Raises WorkerGoneError."""
        self._base = await self._reports.listen()
        ready = await self._run()
        self._port = ready.port
        self._tasks.append(asyncio.create_task(self._end_what_hangs()))
        return ready

    async def keep(self) -> WorkerGoneError:
        """Start the worker again each time it leaves; why it cannot be kept, or is not to be."""
        restarts: deque[float] = deque(maxlen=RESTARTS)
        while True:
            self._error = await self._wait_for_exit()
            now = time.monotonic()
            often = len(restarts) == RESTARTS and now - restarts[0] < RESTARTS_S
            # A worker with RPC servers shares their fate: all of them are made anew.
            if often or self._is_leaving or self._need.rpc_nodes:
                return self._error
            restarts.append(now)
            log.get("charge").warning("the worker is started again", why=str(self._error))
            try:
                await self._run()
            except WorkerGoneError as error:
                self._error = error
                return error
            self._error = None

    async def _run(self) -> ReadyWord:
        ready = self._reports.expect()
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, *self._command, "serve", *self._arguments()),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment(),
            start_new_session=True,  # signals of a terminal are for the fleet
        )
        self._reading = asyncio.create_task(pass_on(self.process, self._lines))
        if self._is_leaving:  # it was told while there was no process
            self.process.terminate()
        gone = asyncio.ensure_future(self.process.wait())
        await asyncio.wait({gone, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            raise await self._wait_for_exit()
        gone.cancel()
        return ready.result()

    @property
    def key(self) -> str:
        return self._key

    def check(self) -> None:
        """Raise WorkerGoneError where the worker has left for good."""
        if self._error is not None and (
            self.process is None or self.process.returncode is not None
        ):
            raise self._error

    async def drain(self) -> None:
        """Let the worker finish its streams, for as long as its drain time is; it is gone then."""
        self._is_leaving = True
        process = self.process
        if process is not None and process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._need.drain + _LEAVING_S):
                    await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
        for task in self._tasks:
            task.cancel()
        await self._reports.close()

    def kill(self) -> None:
        """End the worker at once: nothing that it serves can go on."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()

    async def _wait_for_exit(self) -> WorkerGoneError:
        """Wait until the worker has left: why, as far as it said."""
        assert self.process is not None
        assert self._reading is not None
        code = await self.process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reading, 1)
        last = sentence_of(self._lines[-1]) if self._lines else "it said nothing"
        return WorkerGoneError(f"The worker left with code {code}: {last}")

    async def _end_what_hangs(self) -> None:
        """Kill a worker whose streams would never end: draining it would be to wait for nothing."""
        while True:
            await asyncio.sleep(_LOOK_S)
            reports, process = self._reports, self.process
            silent = time.monotonic() - reports.heard
            hangs = silent > SILENCE_S or reports.health == "stalled"
            if hangs and reports.ready.done() and process and process.returncode is None:
                why = (
                    "its engine is stalled" if silent <= SILENCE_S else f"silent for {silent:.1f} s"
                )
                log.get("charge").error("the worker hangs and is killed", why=why)
                process.kill()
                await process.wait()

    def _arguments(self) -> list[str]:
        need, base = self._need, self._base
        return [
            *(("--model", need.file) if need.file else ()),
            *need.options,
            "--alias", need.model,
            "--host", self._host,
            "--port", str(self._port),
            "--callback-url", f"{base}/ready",
            "--heartbeat-url", f"{base}/beat",
            "--heartbeat-interval", f"{HEARTBEAT_S:g}",
            "--die-with-parent", "stdin",
            "--no-page", "--trust-account", "--relayed",
            "--log-format", "json",
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        """This process's, without options: the plan did not see those."""
        kept = {k: value for k, value in os.environ.items() if not k.startswith(_OPTIONS)}
        kept.pop("OMP_NUM_THREADS", None)  # Ray sets it; --threads says how many
        return {**kept, _KEY: self._key}
