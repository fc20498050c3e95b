"""The worker: one model, one engine, one owner for both."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from worker import log, machine
from worker.engine.engine import Engine
from worker.engine.thread import EngineThread
from worker.errors import ModelLoadError, StalledError, UnavailableError, WorkerError
from worker.lifecycle.devices import Devices
from worker.lifecycle.loading import open_backend, prepare
from worker.lifecycle.state import Lifecycle, State
from worker.lifecycle.watchdog import Watchdog
from worker.llama import library
from worker.llama.backend import LlamaBackend
from worker.llama.placement import allocated
from worker.memory.offload import HOST, Placement
from worker.memory.plan import MemoryPlan
from worker.model.config import ModelConfig
from worker.settings import Settings

# What the step that runs when all requests were ended, or a load that was called off, gets.
STOP_TIMEOUT_S = 0.9

_T = TypeVar("_T")


class Worker:
    """Loads, serves, drains, stops. Methods are for the event loop's thread.

    id          the manager's, or a new one
    progress    share of the model that is loaded, 0 to 1
    error       why the worker failed, once it has
    vram_bytes  GPU memory that loading took, measured; what a GPU shares with the CPU is not in it
    """

    def __init__(
        self,
        settings: Settings,
        model_path: Path,
        on_progress: Callable[[float], object] | None = None,
    ) -> None:
        """`on_progress` gets the share that is loaded, in the thread that loads."""
        self.settings = settings
        self.model_path = model_path
        self.id = settings.worker_id or str(uuid.uuid4())
        self.lifecycle = Lifecycle()
        self.progress = 0.0
        self.error: WorkerError | None = None
        self.started_at = time.monotonic()
        self.config: ModelConfig | None = None
        self.plan: MemoryPlan | None = None
        self.devices = Devices()
        self.vram_bytes = 0
        self.failed = asyncio.Event()
        self.stop_requested = asyncio.Event()
        self._cut_short = asyncio.Event()
        self._on_progress = on_progress
        self._stop_by = 0.0
        self._cancelled = threading.Event()
        self._backend: LlamaBackend | None = None
        self._engine: EngineThread | None = None
        self._watchdog: Watchdog | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """Where in its life the worker is."""
        return self.lifecycle.state

    @property
    def model_id(self) -> str:
        """The id under which clients see the model."""
        return self.settings.alias or self.model_path.stem

    @property
    def backend(self) -> LlamaBackend:
        """The loaded model. Raises UnavailableError before it is there."""
        if self._backend is None:
            raise UnavailableError("Loading model", code="loading")
        return self._backend

    @property
    def engine(self) -> EngineThread:
        """The running engine. Raises UnavailableError unless the worker is ready."""
        if self._engine is None:
            raise UnavailableError("Loading model", code="loading")
        return self._engine

    @property
    def is_stalled(self) -> bool:
        """Whether the engine's thread hangs."""
        return self._watchdog is not None and self._watchdog.is_stalled

    @property
    def health(self) -> Literal["healthy", "degraded", "stalled"]:
        """Degraded: the engine is late, or as many requests wait as may wait."""
        if self.is_stalled:
            return "stalled"
        engine, watchdog = self._engine, self._watchdog
        full = engine is not None and engine.num_streams >= engine.max_streams
        return "degraded" if full or (watchdog and watchdog.is_late) else "healthy"

    @property
    def engine_silence_s(self) -> float:
        """Seconds since the engine's last sign of life."""
        return 0.0 if self._engine is None else max(0.0, time.monotonic() - self._engine.tick)

    @property
    def is_busy(self) -> bool:
        """Whether a new request would have to wait."""
        engine = self._engine
        return engine is not None and engine.num_streams >= engine.snapshot.max_running

    @property
    def memory_bytes(self) -> int:
        """Memory that is held now, on the host and on GPUs; measured."""
        return machine.resident_bytes() + self.vram_bytes

    async def load(self) -> None:
        """Check the file, plan the memory, load, warm up; then READY. Failures end in FAILED."""
        try:
            backend = await _in_thread(self._load)
            if self.lifecycle.move(State.READY):
                self._start(backend)
            else:  # stopped meanwhile
                backend.close()
        except Exception as error:  # noqa: BLE001  (a worker that cannot load must say so and leave)
            if self._cancelled.is_set():
                return  # the load was given up because the worker stops
            if not isinstance(error, WorkerError):
                log.get("worker").error("loading failed", exc_info=error)
                error = ModelLoadError(f"Loading failed: {error!r}.")
            self.fail(error)

    def _start(self, backend: LlamaBackend) -> None:
        """Put an engine over the model, and a watchdog over the engine."""
        self._backend = backend
        self._engine = EngineThread(self._make_engine(backend), self.settings.queue_size, self.fail)
        self._engine.start()
        sleeps = any(device != "CPU" for device in backend.weights.residency.layers)
        self._watchdog = Watchdog(self._engine, sleeps=sleeps)
        self._watching = asyncio.create_task(self._watch(self._watchdog))
        self._log_ready(backend)

    def _load(self) -> LlamaBackend:
        """Everything that blocks; runs in a thread of its own."""
        prepared = prepare(self.model_path, self.settings)
        self.config, self.plan, self.devices = prepared.config, prepared.plan, prepared.devices
        if self._cancelled.is_set():
            raise ModelLoadError("Loading was given up.")
        backend = open_backend(self.model_path, self.settings, prepared, self._report_progress)
        if not self.devices.is_unified:
            now = {device.name: device.memory_free for device in library.devices()}
            taken = (d.memory_free - now.get(d.name, d.memory_free) for d in self.devices.chosen)
            # A CPU behind an RPC server does not tell what is free: there llama.cpp's word counts.
            told = (place.nbytes for place in allocated(backend) if place.device != HOST)
            self.vram_bytes = max(sum(taken), sum(told))
        return backend

    def _make_engine(self, backend: LlamaBackend) -> Engine:
        assert self.plan is not None
        return Engine(
            backend,
            time.monotonic,
            max_running=self.plan.num_slots,
            max_stall=self.settings.max_stall_ms / 1e3,
            drafting=self.settings.draft == "ngram",
        )

    def _report_progress(self, share: float) -> bool:
        self.progress = share
        if self._on_progress is not None:
            self._on_progress(share)
        return not self._cancelled.is_set()

    def _log_ready(self, backend: LlamaBackend) -> None:
        assert self.plan is not None
        proportional = machine.proportional_bytes()
        log.get("worker").info(
            "ready",
            model=self.model_id,
            seconds=round(time.monotonic() - self.started_at, 2),
            memory_mb=_mb(self.memory_bytes),
            shared_out_mb=None if proportional is None else _mb(proportional),
            planned_mb=_mb(self.plan.total_bytes),
            context=backend.num_cells,
            parallel=self.plan.num_slots,
            layers=_count(backend.weights.residency.layers),
            kv=_count(tuple(device for _, device in backend.context.residency.layers)),
            buffers_mb=_mb_by_device(allocated(backend)),
        )

    async def _watch(self, watchdog: Watchdog) -> None:
        await watchdog.until_hopeless()
        self.fail(
            StalledError(
                f"The engine has given no sign of life for {watchdog.silent_s:.0f} seconds.",
                hint="Only a new worker helps.",
            )
        )

    def fail(self, error: WorkerError) -> None:
        """Record why the worker cannot go on; its owner leaves with the error's exit code."""
        if self.lifecycle.move(State.FAILED):
            self.error = error
            self.failed.set()

    def request_stop(self, why: str, *, now: bool = False) -> None:
        """Ask the worker's owner to drain and to leave with 0.

        Further calls change nothing, except that `now` gives running requests no more time.
        """
        if not self.stop_requested.is_set():
            log.get("worker").info("stopping", why=why)
            self.stop_requested.set()
        if now:
            self._cut_short.set()

    async def drain(self) -> None:
        """Refuse new work, give running requests the drain time, then end them.

        A worker that failed, before or meanwhile, ends them at once.
        """
        self._cancelled.set()
        count = 0
        if self.lifecycle.move(State.DRAINING) and self._engine is not None:
            draining = asyncio.create_task(self._engine.drain(self.settings.drain_timeout))
            others = [
                asyncio.create_task(self.failed.wait()),
                asyncio.create_task(self._cut_short.wait()),
            ]
            await asyncio.wait([draining, *others], return_when=asyncio.FIRST_COMPLETED)
            count = draining.result() if draining.done() else 0
            for task in (draining, *others):
                task.cancel()
        if self._engine is not None:
            count += await self._engine.drain(0)
            if count:
                log.get("worker").warning("requests cut off at shutdown", count=count)
            self._engine.stop(seconds=0)
        if self._watching is not None:
            self._watching.cancel()
        self._stop_by = time.monotonic() + STOP_TIMEOUT_S

    def close(self, *, free: bool = True) -> None:
        """Stop the engine and free the model, once; a no-op when nothing is loaded.

        Nothing is freed under the feet of a step that does not end in time, nor without `free`:
        the system takes it back.
        """
        if self._engine is not None:
            left = max(0.0, self._stop_by - time.monotonic())
            if not self._engine.stop(seconds=left):
                log.get("worker").warning("a step still runs; the model is left to the system")
                free = False
            self._engine = None
        if self._backend is not None and free:
            self._backend.close()
        self._backend = None
        self.lifecycle.move(State.STOPPED)


async def _in_thread(function: Callable[[], _T]) -> _T:
    """Await what a thread of its own computes; a worker that leaves does not wait for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def settle(result: Callable[[], None]) -> None:
        if not future.done():
            result()

    def run() -> None:
        try:
            result = partial(future.set_result, function())
        except BaseException as error:  # noqa: BLE001  (it is raised where it is awaited)
            result = partial(future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, name="load", daemon=True).start()
    return await future


def _mb(count: int) -> int:
    return round(count / 1e6)


def _mb_by_device(places: tuple[Placement, ...]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for place in places:
        sums[place.device] = sums.get(place.device, 0) + place.nbytes
    return {device: _mb(size) for device, size in sums.items()}


def _count(devices: tuple[str, ...]) -> dict[str, int]:
    return {device: devices.count(device) for device in dict.fromkeys(devices)}
