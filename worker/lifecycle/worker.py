"""The worker: one model, one engine, one owner for both."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from worker import log
from worker.errors import (
    DoesNotFitError,
    ModelLoadError,
    StalledError,
    UnavailableError,
    WakeError,
    WorkerError,
    out_of_memory,
)
from worker.lifecycle.sleeper import Sleeper
from worker.lifecycle.state import Lifecycle, State
from worker.lifecycle.threads import in_thread
from worker.lifecycle.watchdog import Watchdog
from worker.settings import Settings

# Imported in the thread that loads: the service listens before numpy and llama.cpp are there.
if TYPE_CHECKING:
    from worker.lifecycle.compose import LoadedParts
    from worker.lifecycle.loaded import Loaded
    from worker.lifecycle.media import MediaReader
    from worker.lifecycle.persistence import Recalled
    from worker.lifecycle.prepared import Prepared

# What the step that runs when all requests were ended, or a load that was called off, gets.
STOP_TIMEOUT_S = 0.9


class Worker:
    """Loads, serves, drains, stops. Methods are for the event loop's thread.

    id          the manager's, or a new one
    progress    share of the model that is loaded, 0 to 1
    prepared    what was decided before the weights are read; None until then
    parts       seconds that parts of the start took; some of them overlap
    at_weights  set when native code is about to load the weights, or the load has failed: Python
                is free then
    error       why the worker failed, once it has
    sleeper     puts the model away and brings it back, once it is loaded
    is_quiet    whether no thread uses the model for a request that has ended
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
        self.url = ""  # of the first address, once it is bound
        self.port = 0  # of all addresses that have one
        self.lifecycle = Lifecycle()
        self.progress = 0.0
        self.error: WorkerError | None = None
        self.started_at = time.monotonic()
        self.prepared: Prepared | None = None
        self.parts: dict[str, float] = {}
        self.at_weights = threading.Event()
        self.sleeper: Sleeper | None = None
        self.is_quiet: Callable[[], bool] = lambda: True
        self.failed = asyncio.Event()
        self.stop_requested = asyncio.Event()
        self._cut_short = asyncio.Event()
        self._on_progress = on_progress
        self._stop_by = 0.0
        self._cancelled = threading.Event()
        self._loaded: Loaded | None = None
        self._recalled: Recalled | None = None
        self._watchdog: Watchdog | None = None
        self._watching: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._is_waking = False
        self._failed_wakes = 0  # in a row

    @property
    def state(self) -> State:
        """Where in its life the worker is."""
        return self.lifecycle.state

    @property
    def model_id(self) -> str:
        """The id under which clients see the model."""
        names = self.settings.alias
        return names[0] if names else log.in_utf8(self.model_path.stem)

    @property
    def draft_id(self) -> str | None:
        """The file name of the model that guesses tokens, without its suffix."""
        draft = self.settings.draft_model
        return None if draft is None else log.in_utf8(Path(draft).stem)

    @property
    def loaded(self) -> Loaded:
        """The model and its engine. Raises UnavailableError while they are not there."""
        if self._loaded is None:
            raise UnavailableError("Loading model", code="loading")
        return self._loaded

    @property
    def is_sleeping(self) -> bool:
        """Whether the model's memory was given back until somebody asks."""
        return self.sleeper is not None and self.sleeper.is_sleeping

    @property
    def is_stalled(self) -> bool:
        """Whether the engine's thread hangs."""
        return self._watchdog is not None and self._watchdog.is_stalled

    @property
    def health(self) -> Literal["healthy", "degraded", "stalled"]:
        """Degraded: the engine is late, or as many requests wait as may wait."""
        if self.is_stalled:
            return "stalled"
        loaded, watchdog = self._loaded, self._watchdog
        full = loaded is not None and loaded.engine.num_streams >= loaded.engine.max_streams
        return "degraded" if full or (watchdog and watchdog.is_late) else "healthy"

    async def load(self, beside: Awaitable[object]) -> None:
        """Check the file, plan the memory, load, warm up; then READY. Failures end in FAILED.

        beside: what else must be done before READY
        """
        try:
            loading = in_thread("load", self._load)
            made = await loading
            await beside
            if self.lifecycle.move(State.READY):
                self._start(made)
            else:  # stopped meanwhile
                made.close()
        except Exception as error:  # noqa: BLE001  (a worker that cannot load must say so and leave)
            if self._cancelled.is_set():
                return  # the load was given up because the worker stops
            self._fail_to_load(error)

    def _start(self, made: LoadedParts) -> None:
        """Put an engine over the model, and a watchdog over the engine."""
        self._loaded = made.compose(self.settings, self.model_id, self.fail)
        self._recalled, thread = made.recalled, self._loaded.engine
        thread.start()
        layers = made.native.backend.weights.residency.layers
        sleeps = any(device != "CPU" for device in layers)
        self._watchdog = Watchdog(thread, sleeps=sleeps)
        self._watching = asyncio.create_task(self._watch(self._watchdog))
        self.sleeper = Sleeper(
            self.settings.sleep_idle_seconds,
            lambda: not thread.num_streams and self.is_quiet(),
            self._put_away,
            self._bring_back,
        )
        self._settling = asyncio.create_task(self._settle(self._loaded))
        seconds = round(time.monotonic() - self.started_at, 2)
        parts = {name: round(value, 3) for name, value in self.parts.items()}
        summary = self._loaded.summary(self.url, seconds, page=self.settings.page)
        log.get("worker").info(
            "ready", console=summary, seconds=seconds, parts=parts, **self._loaded.figures()
        )

    def _load(self) -> LoadedParts:
        """Everything that blocks; runs in a thread of its own."""
        media: MediaReader | None = None
        try:
            with self.time_part("imports"):
                from worker.lifecycle.prepared import load_weights, prepare
            with self.time_part("check"):
                prepared = self.prepared = prepare(self.model_path, self.settings)
            if self._cancelled.is_set():
                raise ModelLoadError("Loading was given up.")
            self.at_weights.set()
            if prepared.projector is not None:  # which is loaded beside the weights
                from worker.lifecycle.media import MediaReader

                media = MediaReader(self.settings, prepared)
            with self.time_part("weights"):
                weights = load_weights(
                    self.model_path, self.settings, prepared, self._report_progress
                )
            with self.time_part(
                "more imports"
            ):  # `service/server.py` began them beside the weights
                from worker.lifecycle.compose import load_parts
            made = load_parts(weights, self.settings, prepared, media, self.time_part)
            self.prepared = made.prepared
            self.parts |= made.native.backend.seconds
            return made
        except BaseException:
            if media is not None:
                media.close()
            raise
        finally:
            self.at_weights.set()

    async def _settle(self, loaded: Loaded) -> None:
        """What can wait until the worker is ready."""
        assert self.prepared is not None
        _, self.prepared = await asyncio.gather(
            loaded.use_large_pages(), loaded.ask_for_plan(self.prepared)
        )

    async def _put_away(self) -> None:
        """Give the model's memory back; kept states stay. Raises UnavailableError."""
        loaded, began = self._ready_model(), time.monotonic()
        if self._settling is not None:
            self._settling.cancel()
        await loaded.adapter_loader.settle()
        await loaded.engine.between_steps(loaded.put_away)
        if loaded.media is not None:
            await asyncio.to_thread(loaded.media.rest)
        log.get("worker").info("the model sleeps", seconds=round(time.monotonic() - began, 3))

    async def _bring_back(self) -> None:
        """Load it again. Raises WakeError where that fails, and the next request tries again;
        UnavailableError where the worker has failed too often, or stops."""
        loaded, prepared, began = self._ready_model(), self.prepared, time.monotonic()
        assert prepared is not None
        self._is_waking = True
        log.get("worker").info("the model wakes")
        try:
            again = partial(loaded.load_again, self.model_path, prepared, self._report_progress)
            native = await in_thread("load", again)
        except Exception as error:
            self._ready_model()
            raise self._count_failed_wake(error) from error
        finally:
            self._is_waking = False
        self._failed_wakes = 0
        try:
            await loaded.engine.between_steps(lambda: loaded.bring_back(native))
        except UnavailableError:  # the worker stopped meanwhile
            native.close()
            raise
        self._settling = asyncio.create_task(self._settle(loaded))
        log.get("worker").info("the model is back", seconds=round(time.monotonic() - began, 3))

    def _count_failed_wake(self, error: Exception) -> UnavailableError:
        """What those who wait are told; after `--wake-attempts` failures the worker has failed."""
        cause = _as_ours(error)
        self._failed_wakes += 1
        if self._failed_wakes == self.settings.wake_attempts:
            self.fail(cause)
            return UnavailableError(f"The worker failed: {cause}", code="failed")
        hint = cause.hint
        if isinstance(cause, DoesNotFitError):
            hint = "Free memory; the next request tries again."
        elif cause.code == "CHANGED":
            hint = "Put it back, and the next request tries again; start the worker for a new one."
        told = WakeError(f"The model could not be loaded again: {cause.message}", hint=hint)
        log.get("worker").warning("the model still sleeps", reason=str(told))
        return told

    def _ready_model(self) -> Loaded:
        """What is loaded. Raises UnavailableError where the worker stops or has failed."""
        if self.state is State.FAILED:
            raise UnavailableError(f"The worker failed: {self.error}", code="failed")
        if self.state is not State.READY or self._cancelled.is_set():
            raise UnavailableError("The worker is shutting down.", code="draining")
        return self.loaded

    def _fail_to_load(self, error: Exception) -> None:
        self.fail(_as_ours(error))

    @contextlib.contextmanager
    def time_part(self, part: str) -> Generator[None]:
        """Note how long a part of the start takes."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.parts[part] = time.monotonic() - begun

    def _report_progress(self, share: float) -> bool:
        self.progress = share
        if self._on_progress is not None:
            self._on_progress(share)
        return not self._cancelled.is_set()

    async def _watch(self, watchdog: Watchdog) -> None:
        await watchdog.until_hopeless()
        silence = f"The engine has given no sign of life for {watchdog.silent_s:.0f} seconds."
        self.fail(StalledError(silence, hint="Only a new worker helps."))

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
            waits = self._loaded.engine.num_streams if self._loaded else 0
            sentence = f"Stopping ({why})"
            if waits and not now:
                sentence += (
                    f": waiting up to {self.settings.drain_timeout:g} s for {waits} "
                    f"request{'s' if waits > 1 else ''}"
                )
            log.get("worker").info("stopping", console=f"{sentence}.", why=why, requests=waits)
            self.stop_requested.set()
        if now:
            self._cut_short.set()

    async def drain(self) -> None:
        """Refuse new work, give running requests the drain time, then end them.

        A worker that failed, before or meanwhile, ends them at once.
        """
        self._cancelled.set()
        count = 0
        engine = self._loaded.engine if self._loaded else None
        if self.lifecycle.move(State.DRAINING) and engine is not None:
            draining = asyncio.create_task(engine.drain(self.settings.drain_timeout))
            others = [
                asyncio.create_task(self.failed.wait()),
                asyncio.create_task(self._cut_short.wait()),
            ]
            await asyncio.wait([draining, *others], return_when=asyncio.FIRST_COMPLETED)
            count = draining.result() if draining.done() else 0
            for task in (draining, *others):
                task.cancel()
        if engine is not None:
            count += await engine.drain(0)
            if count:
                log.get("worker").warning("requests cut off at shutdown", count=count)
            engine.stop(seconds=0)
        for task in (self._watching, self._settling, self.sleeper and self.sleeper.timer):
            if task is not None:
                task.cancel()
        self._stop_by = time.monotonic() + STOP_TIMEOUT_S

    def close(self, *, free: bool = True) -> None:
        """Stop the engine and free the model, once; a no-op when nothing is loaded.

        Nothing is freed under the feet of a step that does not end in time, nor without `free`:
        the system takes it back.
        """
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            left = max(0.0, self._stop_by - time.monotonic())
            if not loaded.engine.stop(seconds=left):
                log.get("worker").warning("a step still runs; the model is left to the system")
            else:
                if self._recalled is not None:
                    self._recalled.write()
                if loaded.store is not None:
                    loaded.store.close(max(0.0, self._stop_by - time.monotonic()))
                if free and not self._is_waking:
                    loaded.native.close()
            if loaded.media is not None:
                loaded.media.close()
        self.lifecycle.move(State.STOPPED)


def _as_ours(error: Exception) -> WorkerError:
    """Why a load failed, also where nobody raised it on purpose."""
    if isinstance(error, WorkerError):
        return error
    log.get("worker").error("loading failed", exc_info=error)
    return out_of_memory(error) or ModelLoadError(f"Loading failed: {error!r}.")
