"""What a pool manager is told: once that the worker is ready, then how it is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from worker import __version__, log
from worker.errors import CallbackError
from worker.lifecycle.http_client import TIMEOUT_S, own_address, post, without_query
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.state import State
from worker.lifecycle.worker import Worker

IMPLEMENTATION = "gguf-worker"
TRIES = 3
# Before the second and the third try, each made up to half longer or shorter by chance: workers
# that were started together do not come back together.
_BACKOFF_S = (0.5, 1.5)
# How soon a change of health is told, when no heartbeat is due.
_LOOK_S = 0.5
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104  (compared with, not bound)
_STATUS = {
    State.LOADING: "starting",
    State.READY: "ready",
    State.DRAINING: "stopping",
    State.STOPPED: "stopped",
    State.FAILED: "stopped",
}


class ReadyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The body of the ready callback.

    uri                  the same as url
    device               number of the device among those of the backend
    vram_bytes           GPU memory taken, measured
    memory_bytes         that and what is resident on the host
    memory_architecture  "vram-only" on a GPU with memory of its own, else "unified"
    """

    worker_id: str
    url: str
    uri: str
    model_ref: str
    backend: str
    device: int
    vram_bytes: int
    memory_bytes: int
    memory_architecture: str
    worker_type: str = "llm"
    capabilities: tuple[str, ...]
    pid: int
    port: int
    version: str = __version__


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`status`: starting, ready, busy (a new request would wait), sleeping (it loads the model),
    stopping or stopped."""

    id: str
    model_id: str
    device: str
    port: int
    status: str
    implementation: str = IMPLEMENTATION
    version: str = __version__


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a heartbeat; `engine_silence_seconds`: since the engine's last sign of life."""

    worker_id: str
    timestamp: str
    health_status: str
    engine_silence_seconds: float
    worker: WorkerInfo


def worker_info(worker: Worker, loaded: Loaded) -> WorkerInfo:
    """How the worker is now."""
    busy = worker.state is State.READY and loaded.is_busy
    return WorkerInfo(
        id=worker.id,
        model_id=loaded.model_id,
        device=f"{'GPU' if loaded.devices.chosen else 'CPU'}-{loaded.devices.number}",
        port=worker.port,
        status="sleeping" if worker.is_sleeping else "busy" if busy else _STATUS[worker.state],
    )


class Manager:
    """The pool manager, told from a thread of its own, so that nothing it does is waited for.

    The thread only reads counters of the worker. A refused callback ends the worker; nothing that
    becomes of a heartbeat does.
    """

    def __init__(self, worker: Worker, loaded: Loaded) -> None:
        """worker: one that is ready."""
        self._worker = worker
        self._loaded = loaded
        self._loop = asyncio.get_running_loop()
        self._log = log.get("manager")
        self._heartbeat_works = True

    def start(self) -> None:
        """Report that the worker is ready, then send heartbeats; a no-op where nobody asked."""
        settings = self._worker.settings
        if settings.callback or settings.heartbeat_url:
            threading.Thread(target=self._run, name="manager", daemon=True).start()

    def _run(self) -> None:
        settings = self._worker.settings
        if settings.callback and not self._call_back(settings.callback):
            return
        if settings.heartbeat_url:
            self._beat(settings.heartbeat_url, settings.heartbeat_interval)

    def _call_back(self, url: str) -> bool:
        """Report readiness; True when it was accepted. Otherwise the worker fails."""
        reason = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(_BACKOFF_S[attempt - 1] * random.uniform(0.5, 1.5))  # noqa: S311
            if self._worker.state is not State.READY:
                return False
            reason = _refusal(url, msgspec.json.encode(self._report(url)))
            if not reason:
                self._log.info("the manager knows that the worker is ready", url=without_query(url))
                return True
            self._log.warning(
                "ready callback", url=without_query(url), failed=reason, attempt=attempt + 1
            )
        error = CallbackError(
            f"The manager at {without_query(url)} did not accept the ready callback: {reason}.",
            hint="Check --callback-url.",
        )
        with contextlib.suppress(RuntimeError):  # the loop is gone: the worker leaves already
            self._loop.call_soon_threadsafe(self._give_up, error)
        return False

    def _give_up(self, error: CallbackError) -> None:
        """On the event loop: end the worker, unless it was asked to leave meanwhile."""
        if not self._worker.stop_requested.is_set():
            self._worker.fail(error)

    def _beat(self, url: str, interval: float) -> None:
        """Send heartbeats for ever, each interval and as soon as the worker's health changes."""
        due, told = time.monotonic(), ""
        while True:
            worker = self._worker
            health = f"{worker.health} {worker.state} {worker.is_sleeping}"
            if time.monotonic() >= due or health != told:
                due, told = time.monotonic() + interval, health
                self._note(_refusal(url, msgspec.json.encode(self._heartbeat())))
            time.sleep(min(_LOOK_S, max(0.0, due - time.monotonic())))

    def _note(self, failure: str) -> None:
        """Log the first of several failures, and the end of them."""
        if bool(failure) is self._heartbeat_works:
            self._heartbeat_works = not failure
            if failure:
                self._log.warning("heartbeats do not arrive", failed=failure)
            else:
                self._log.info("heartbeats arrive again")

    def _report(self, callback: str) -> ReadyReport:
        worker, loaded = self._worker, self._loaded
        url = self._public_url(callback)
        return ReadyReport(
            worker_id=worker.id,
            capabilities=loaded.capabilities,
            url=url,
            uri=url,
            model_ref=worker.settings.model_ref
            or log.in_utf8(f"file:{Path(worker.model_path).resolve()}"),
            backend=loaded.devices.backend,
            device=loaded.devices.number,
            vram_bytes=loaded.vram_bytes,
            memory_bytes=loaded.memory_bytes,
            memory_architecture=loaded.memory_architecture,
            pid=os.getpid(),
            port=self._worker.port,
        )

    def _public_url(self, callback: str) -> str:
        """Where the manager finds us: a host that it knows, unless we listen on a file."""
        parts = urlsplit(self._worker.url)
        if parts.hostname is None:
            return self._worker.url
        host = self._worker.settings.public_host or parts.hostname
        if host in _ANY_ADDRESS:
            with contextlib.suppress(OSError):
                host = own_address(callback)
        return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{parts.port}"

    def _heartbeat(self) -> Heartbeat:
        worker = self._worker
        return Heartbeat(
            worker_id=worker.id,
            timestamp=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            health_status=worker.health,
            engine_silence_seconds=round(max(0.0, time.monotonic() - self._loaded.engine.tick), 3),
            worker=worker_info(worker, self._loaded),
        )


def _refusal(url: str, body: bytes) -> str:
    """Why the POST was not accepted, or "". A redirect is no acceptance."""
    try:
        status = post(url, body)
    except TimeoutError:
        return f"no answer within {TIMEOUT_S:.0f} seconds"
    except OSError as error:
        return str(error.strerror or error)
    return "" if 200 <= status < 300 else f"it answered {status}"
