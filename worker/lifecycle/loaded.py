"""What is there once the worker is ready: the model, whole, and the engine over it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from worker import log, machine
from worker.cache.store import Store
from worker.engine.thread import EngineThread
from worker.errors import RequestError
from worker.lifecycle.adapter_loader import AdapterLoader
from worker.lifecycle.adapters import ServedAdapters
from worker.lifecycle.asked_plan import ask_when_idle
from worker.lifecycle.default_sampling import changed_sampling, default_sampling
from worker.lifecycle.devices import Devices
from worker.lifecycle.loading import Native, open_backend, open_draft
from worker.lifecycle.media import MediaReader
from worker.lifecycle.prepared import Prepared, check_memory, load_weights
from worker.lifecycle.slots import NamedSlots
from worker.llama.backend import LlamaBackend
from worker.llama.process import memory
from worker.llama.process.memory import return_pages
from worker.llama.residency import placements
from worker.memory.cells import is_fused
from worker.memory.plan import MemoryPlan
from worker.model.calibration import DecisionCalibration
from worker.model.config import ModelConfig
from worker.settings import Settings

# Bytes that are moved at once: 1 to 15 ms of a CPU.
_STRETCH = 4 << 20
# Seconds before each of them while nobody asks, and beside requests.
_IDLE_S, _BESIDE_S = 0.02, 0.5

# Kind of a medium -> what managers call a model that takes it.
PERCEIVES = {"image": "vision", "audio": "audio"}

_log = log.get("lifecycle")


@dataclass(kw_only=True, eq=False)
class Loaded:
    """A loaded model and what was decided for it. Routes get it, so none can meet half of it.

    settings    what the process was asked to do
    model_id    the id under which clients see the model
    native      is another one after each sleep; while the model sleeps it is closed
    guesses     who guesses tokens: auto, none, ngram, model, mtp or both
    adapters    which of them a request gets
    adapter_loader  loads more of them
    store       where the engine's thread keeps states of what has ended; None: nowhere
    slots       what requests said that named a slot
    media       reads pictures and sounds; None: the model takes none
    loaded_vram_bytes  GPU memory that loading took, measured; what a GPU shares with the CPU is not
                       in it
    calibration  temperatures of decisions that were measured for this file; None: there are none
    is_away     the model sleeps
    writes      whether it continues texts
    """

    settings: Settings
    model_id: str
    config: ModelConfig
    plan: MemoryPlan
    devices: Devices
    native: Native
    guesses: str
    adapters: ServedAdapters
    adapter_loader: AdapterLoader
    engine: EngineThread
    store: Store | None
    slots: NamedSlots
    media: MediaReader | None
    loaded_vram_bytes: int
    calibration: DecisionCalibration | None = None
    is_away: bool = False
    writes: bool = field(init=False)

    def __post_init__(self) -> None:
        self.writes = not self.config.only_embeds

    @property
    def backend(self) -> LlamaBackend:
        return self.native.backend

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What a manager may send it: text-gen, vision, audio, embedding, rerank."""
        found = ("text-gen", *self.perceives) if self.writes else ()
        if self.backend.embedder is None:
            return found
        return (*found, "rerank" if self.backend.embedder.pooling == "rank" else "embedding")

    @property
    def perceives(self) -> tuple[str, ...]:
        """Which media it takes: vision, audio."""
        if self.media is None:
            return ()
        return tuple(PERCEIVES[kind] for kind in self.media.ready.kinds)

    def check_writes(self) -> None:
        """Raise RequestError where the model writes no text."""
        if not self.writes:
            ways = "/v1/rerank" if self.config.vectors.pooling == "rank" else "/v1/embeddings"
            raise RequestError(
                f"{self.model_id} {self.config.task}.", hint=f"Ask {ways}.", code="no_text"
            )

    @property
    def vram_bytes(self) -> int:
        """GPU memory that is held now."""
        return 0 if self.is_away else self.loaded_vram_bytes

    @property
    def memory_bytes(self) -> int:
        """Memory that is held now, on the host and on GPUs; measured."""
        return machine.resident_bytes() + self.vram_bytes

    @property
    def is_busy(self) -> bool:
        """Whether a new request would have to wait."""
        return self.engine.num_streams >= self.engine.snapshot.max_running

    @property
    def is_fused(self) -> bool:
        """Whether attention is fused now."""
        context = self.backend.context
        return context.fused and is_fused(self.config, context.options.flash_attn)

    @property
    def attention(self) -> Literal["fused", "plain"]:
        """How attention is computed where each sequence has cells of its own."""
        options = self.backend.context.options
        is_plain = options.plain_rows or not is_fused(self.config, options.flash_attn)
        return "plain" if is_plain else "fused"

    @property
    def memory_architecture(self) -> str:
        """`unified`: the model lies in the memory that the CPU uses; else `vram-only`."""
        return "unified" if self.devices.is_unified else "vram-only"

    def put_away(self) -> None:
        """In the engine's thread: free the model, and what guesses for it."""
        self.engine.engine.empty()
        self.native.close()
        self.is_away = True
        return_pages()

    def load_again(
        self, path: Path, prepared: Prepared, on_progress: Callable[[float], bool]
    ) -> Native:
        """In a thread of its own: what was prepared at the start, with the adapters that are served
        now. Raises what loading raises."""
        prepared = msgspec.structs.replace(prepared, adapters=self.adapters.all)
        check_memory(prepared, self.settings)
        weights = load_weights(path, self.settings, prepared, on_progress)
        backend = open_backend(weights, self.settings, prepared, guides=self.backend.guides)
        try:
            return Native(backend, open_draft(self.settings, prepared, backend))
        except BaseException:
            backend.close()
            raise

    def bring_back(self, native: Native) -> None:
        """In the engine's thread: go on with what was loaded again."""
        self.native = native
        self.engine.engine.use(native.backend, native.draft, native.backend.embedder)
        self.is_away = False

    async def use_large_pages(self) -> None:
        """Move what was loaded, slowly beside requests.

        To load into large pages would keep everybody waiting: a virtual machine takes seconds to
        give a GB of them.
        """
        size = 0
        for stretch in memory.stretches(_STRETCH):
            await asyncio.sleep(_BESIDE_S if self.engine.num_streams else _IDLE_S)
            size += await asyncio.to_thread(memory.collapse, stretch)
        _log.info("large pages", console="", memory_mb=_mb(size))

    async def ask_for_plan(self, prepared: Prepared) -> Prepared:
        """The same with llama.cpp's own sizes, and from now on its plan; see `ask_when_idle`."""
        plan = await ask_when_idle(prepared, self.settings, lambda: not self.engine.num_streams)
        self.plan = plan
        return msgspec.structs.replace(prepared, plan=plan)

    def summary(self, url: str, seconds: float, *, page: bool) -> str:
        """What a person reads once the worker is ready."""
        devices = " and ".join(dict.fromkeys(self.backend.weights.residency.layers))
        shape, slots = self.backend.shape, self.plan.num_slots
        opened = "Open" if page else "Send requests to"
        sampling = ", ".join(f"{name} {value}" for name, value in self._sampling().items())
        return (
            f"Ready after {seconds:.1f} s: {self.model_id} on {devices}, {shape.num_cells:,} "
            f"tokens of context for {slots} request{'s' if slots > 1 else ''} at once, "
            f"{machine.human_bytes(self.memory_bytes)}, {sampling}. {opened} {url}"
        )

    def _sampling(self) -> dict[str, Any]:
        return changed_sampling(default_sampling(self.config, self.settings))

    def figures(self) -> dict[str, object]:
        """What the log says of a worker that is ready."""
        proportional = machine.proportional_bytes()
        draft, context = self.native.draft, self.backend.context
        residency = self.backend.weights.residency
        places = placements(residency, context.residency, draft.buffers if draft else ())
        buffers: dict[str, int] = {}
        for place in places:
            buffers[place.device] = buffers.get(place.device, 0) + place.nbytes
        return {
            "model": self.model_id,
            "memory_mb": _mb(self.memory_bytes),
            "shared_out_mb": None if proportional is None else _mb(proportional),
            "planned_mb": _mb(self.plan.total_bytes),
            "planned_at_first_mb": _mb(self.plan.first_bytes),
            "context": self.backend.shape.num_cells,
            "parallel": self.plan.num_slots,
            "sampling": self._sampling(),
            "threads": context.threads,
            "attention": self.attention,
            "kept_mb": _mb(self.plan.cache_bytes) if self.store is not None else 0,
            "layers": _count(residency.layers),
            **({"cpu_experts": self.plan.cpu_experts} if self.plan.cpu_experts else {}),
            "kv": _count(tuple(device for _, device in context.residency.layers)),
            "buffers_mb": {device: _mb(size) for device, size in buffers.items()},
            **({"draft_layers": _count(draft.layers)} if draft else {}),
        }


def _mb(count: int) -> int:
    return round(count / 1e6)


def _count(devices: tuple[str, ...]) -> dict[str, int]:
    return {device: devices.count(device) for device in dict.fromkeys(devices)}
