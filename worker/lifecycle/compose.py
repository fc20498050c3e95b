"""Puts a worker together from what loading made: the engine, its thread, and what is around it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from worker.cache.store import Store
from worker.engine.draft import GuessLimits
from worker.engine.drafts.guesser import Drafting
from worker.engine.embedding import EmbeddingLane
from worker.engine.engine import Engine
from worker.engine.thread import EngineThread
from worker.errors import WorkerError
from worker.lifecycle.adapter_loader import AdapterLoader
from worker.lifecycle.adapters import ServedAdapters
from worker.lifecycle.kept import Recalled
from worker.lifecycle.loaded import Loaded, Native
from worker.lifecycle.media import MediaReader
from worker.lifecycle.prepared import Prepared
from worker.lifecycle.slots import named_slots
from worker.llama.companion import Heads
from worker.llama.process.pipe import write
from worker.settings import Settings


class LoadedParts(NamedTuple):
    """What loading makes."""

    prepared: Prepared
    native: Native
    store: Store | None
    recalled: Recalled | None
    media: MediaReader | None
    vram_bytes: int

    def close(self) -> None:
        if self.media is not None:
            self.media.close()
        self.native.close()


def compose(
    settings: Settings, model_id: str, made: LoadedParts, on_failure: Callable[[WorkerError], None]
) -> Loaded:
    """The engine over the model, in a thread that is not started, and what routes ask.

    on_failure: gets why the engine's thread ended
    """
    prepared, backend, clock = made.prepared, made.native.backend, time.monotonic
    max_stall = settings.max_stall_ms / 1e3
    engine = Engine(
        backend,
        clock,
        made.store,
        _drafting(settings, made),
        backend.embedder and EmbeddingLane(backend.embedder, clock, max_stall),
        max_running=prepared.plan.num_slots,
        max_stall=max_stall,
    )
    thread = EngineThread(engine, settings.queue_size, on_failure, write, backend.spin.form_team)
    adapters = ServedAdapters(
        (model_id, *settings.alias), prepared.adapters, may_change=bool(settings.lora_dir)
    )
    loaded = Loaded(
        settings=settings,
        model_id=model_id,
        config=prepared.config,
        plan=prepared.plan,
        devices=prepared.devices,
        native=made.native,
        guesses=prepared.guesses,
        adapters=adapters,
        adapter_loader=AdapterLoader(
            settings, prepared.config, adapters, thread, lambda: loaded.backend
        ),
        engine=thread,
        store=made.store,
        slots=named_slots(settings, prepared, backend, thread),
        media=made.media,
        loaded_vram_bytes=made.vram_bytes,
    )
    return loaded


def _drafting(settings: Settings, made: LoadedParts) -> Drafting:
    draft = made.native.draft
    is_heads = isinstance(draft, Heads)
    return Drafting(
        looks_up=made.prepared.guesses in ("auto", "ngram", "both"),
        recall=made.recalled and made.recalled.recall,
        model=None if is_heads else draft,
        heads=draft if is_heads else None,
        limits=GuessLimits(
            longest=settings.draft_max,
            longest_text=settings.ngram_max or settings.draft_max,
            least=settings.draft_p_min,
        ),
    )
