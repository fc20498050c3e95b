"""The worker: one model, one engine, one owner for both."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

from worker import log, machine
from worker.engine.engine import Engine
from worker.engine.thread import EngineThread
from worker.errors import ModelLoadError, UnavailableError, UsageError, WorkerError
from worker.lifecycle.state import Lifecycle, State
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions
from worker.model.config import ModelConfig, load_config
from worker.model.memory import MemoryPlan, plan_memory
from worker.settings import Settings

STALLED_AFTER_S = 10.0
# For the step that runs when all requests were ended; with the drain time it makes 5 seconds.
STOP_TIMEOUT_S = 0.9


class Worker:
    """Loads, serves, drains, stops. Methods are for the event loop's thread.

    progress    share of the model that is loaded, 0 to 1
    """

    def __init__(self, settings: Settings, model_path: Path) -> None:
        self.settings = settings
        self.model_path = model_path
        self.lifecycle = Lifecycle()
        self.progress = 0.0
        self.error: WorkerError | None = None
        self.started_at = time.monotonic()
        self.config: ModelConfig | None = None
        self.plan: MemoryPlan | None = None
        self._backend: LlamaBackend | None = None
        self._engine: EngineThread | None = None
        self._cancelled = threading.Event()
        self.failed = asyncio.Event()

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
        """Whether the engine's thread has given no sign of life for too long."""
        return self._engine is not None and (time.monotonic() - self._engine.tick > STALLED_AFTER_S)

    async def load(self) -> None:
        """Check the file, plan the memory, load, warm up; then READY. Failures end in FAILED."""
        try:
            backend = await asyncio.to_thread(self._load)
        except WorkerError as error:
            self.fail(error)
            return
        except Exception as error:  # noqa: BLE001  (a worker that cannot load must say so and leave)
            log.get("worker").exception("loading failed")
            self.fail(ModelLoadError(f"Loading failed: {error!r}."))
            return
        if not self.lifecycle.move(State.READY):  # stopped meanwhile
            backend.close()
            return
        self._backend = backend
        self._engine = EngineThread(self._make_engine(backend), self.settings.queue_size, self.fail)
        self._engine.start()
        log.get("worker").info(
            "ready",
            model=self.model_id,
            seconds=round(time.monotonic() - self.started_at, 2),
            memory_mb=round(machine.resident_bytes() / 1e6),
            context=backend.num_cells,
            parallel=self.settings.parallel,
            layers=_count(backend.weights.residency.layers),
            kv=_count(tuple(device for _, device in backend.context.residency.layers)),
        )

    def _load(self) -> LlamaBackend:
        """Everything that blocks; runs in a thread of its own."""
        check_backend(self.settings)
        self.config = load_config(self.model_path)
        self.plan = plan_memory(self.config, self.settings, machine.memory())
        return open_backend(self.model_path, self.settings, self.plan, self._report_progress)

    def _make_engine(self, backend: LlamaBackend) -> Engine:
        return Engine(
            backend,
            time.monotonic,
            max_running=self.settings.parallel,
            max_stall=self.settings.max_stall_ms / 1e3,
            drafting=self.settings.draft == "ngram",
        )

    def _report_progress(self, share: float) -> bool:
        self.progress = share
        return not self._cancelled.is_set()

    def fail(self, error: WorkerError) -> None:
        """Record why the worker cannot go on; its owner leaves with the error's exit code."""
        if self._cancelled.is_set() and isinstance(error, ModelLoadError):
            return  # the load was given up because the worker stops
        if self.lifecycle.move(State.FAILED):
            self.error = error
            self.failed.set()

    async def drain(self) -> None:
        """Refuse new work, give running requests the drain time, then end them."""
        self._cancelled.set()
        if self.lifecycle.move(State.DRAINING) and self._engine is not None:
            ended = await self._engine.drain(self.settings.drain_timeout)
            if ended:
                log.get("worker").warning("requests cut off at shutdown", count=ended)

    def close(self) -> bool:
        """Stop the engine and free the model, once; a no-op when nothing is loaded.

        False when a step did not end in time: then nothing is freed under its feet.
        """
        if self._engine is not None:
            stopped = self._engine.stop(seconds=STOP_TIMEOUT_S)
            self._engine = None
            if not stopped:
                log.get("worker").error("the engine did not stop; the model is left to the system")
                return False
        if self._backend is not None:
            self._backend.close()
            self._backend = None
        self.lifecycle.move(State.STOPPED)
        return True


def open_backend(
    path: Path,
    settings: Settings,
    plan: MemoryPlan,
    on_progress: Callable[[float], bool] | None = None,
) -> LlamaBackend:
    """Load `path` as `settings` and `plan` say, checked for residency and warmed up."""
    threads = settings.threads or machine.usable_cpus()
    backend = LlamaBackend(
        path,
        LoadOptions(
            n_gpu_layers=0 if settings.backend == "cpu" else settings.n_gpu_layers,
            devices=settings.device,
            tensor_split=settings.tensor_split,
            split_mode=settings.split_mode,
            main_gpu=settings.main_gpu,
            mmap=settings.mmap,
        ),
        ContextOptions(
            num_cells=plan.num_cells,
            num_slots=settings.parallel,
            batch_size=settings.batch_size,
            ubatch_size=settings.ubatch_size,
            threads=threads,
            threads_batch=settings.threads_batch or threads,
            cache_type_k=settings.cache_type_k,
            cache_type_v=settings.cache_type_v,
            flash_attn=settings.flash_attn,
        ),
        on_progress=on_progress,
    )
    try:
        if not backend.weights.generates:
            raise ModelLoadError(
                f"{path.name} does not continue text: it is an encoder or a diffusion model.",
                hint="Choose a decoder model.",
            )
        backend.warm_up(choose_threads=settings.threads is settings.threads_batch is None)
    except BaseException:
        backend.close()
        raise
    return backend


def check_backend(settings: Settings) -> None:
    """Raise UsageError for settings that this build cannot follow."""
    from worker.llama import library

    if settings.flash_attn == "off" and settings.cache_type_v not in ("f32", "f16", "bf16"):
        raise UsageError(
            f"--cache-type-v {settings.cache_type_v} needs flash attention.",
            hint="Leave --flash-attn at auto, or use f16.",
        )
    if settings.backend is None:
        return
    have = {name.lower() for name in library.build().backends}
    have |= {"metal"} if "mtl" in have else set()
    if settings.backend not in have:
        raise UsageError(
            f"This build has no {settings.backend} backend, it has: {', '.join(sorted(have))}.",
            hint=f"Install one with `make install BACKEND={settings.backend}`.",
        )


def _count(devices: tuple[str, ...]) -> dict[str, int]:
    return {device: devices.count(device) for device in dict.fromkeys(devices)}
