"""Puts a worker together from what loading made: the engine, its thread, and what is around it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import msgspec

from worker import log
from worker.cache.store import Store
from worker.engine.draft import GuessLimits
from worker.engine.drafts.guesser import Drafting
from worker.engine.embedding import EmbeddingLane
from worker.engine.engine import Engine
from worker.engine.thread import EngineThread
from worker.errors import RequestError, WorkerError
from worker.lifecycle.adapter_loader import AdapterLoader
from worker.lifecycle.adapters import ServedAdapters
from worker.lifecycle.default_sampling import default_constraint, unusable_default
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.loading import Native, gpu_bytes, open_backend, open_draft
from worker.lifecycle.media import MediaReader
from worker.lifecycle.persistence import Recalled, open_store
from worker.lifecycle.prepared import Prepared
from worker.lifecycle.slots import named_slots
from worker.llama.backend import LlamaBackend
from worker.llama.companion import Assistant, StateReader
from worker.llama.process.pipe import write
from worker.llama.weights import Weights
from worker.model.calibration import CalibrationError, DecisionCalibration, load_calibration
from worker.model.config import ModelConfig
from worker.model.decider import DECISION_TEMPLATE
from worker.settings import Settings


class LoadedParts(NamedTuple):
    """What loading makes."""

    prepared: Prepared
    native: Native
    store: Store | None
    recalled: Recalled | None
    media: MediaReader | None
    vram_bytes: int
    calibration: DecisionCalibration | None = None

    def close(self) -> None:
        if self.media is not None:
            self.media.close()
        self.native.close()

    def compose(
        self, settings: Settings, model_id: str, on_failure: Callable[[WorkerError], None]
    ) -> Loaded:
        """The engine over the model, in a thread that is not started, and what routes ask."""
        prepared, backend, clock = self.prepared, self.native.backend, time.monotonic
        max_stall = settings.max_stall_ms / 1e3
        engine = Engine(
            backend,
            clock,
            self.store,
            _drafting(settings, self),
            backend.embedder and EmbeddingLane(backend.embedder, clock, max_stall),
            max_running=prepared.plan.num_slots,
            max_stall=max_stall,
        )
        thread = EngineThread(
            engine, settings.queue_size, on_failure, write, backend.spin.form_team
        )
        adapters = ServedAdapters(
            (model_id, *settings.alias), prepared.adapters, may_change=bool(settings.lora_dir)
        )
        loaded = Loaded(
            settings=settings,
            model_id=model_id,
            config=prepared.config,
            plan=prepared.plan,
            devices=prepared.devices,
            native=self.native,
            guesses=prepared.guesses,
            adapters=adapters,
            adapter_loader=AdapterLoader(
                settings, prepared.config, adapters, thread, lambda: loaded.backend
            ),
            engine=thread,
            store=self.store,
            slots=named_slots(settings, prepared, backend, thread),
            media=self.media,
            loaded_vram_bytes=self.vram_bytes,
            calibration=self.calibration,
        )
        return loaded


def load_parts(
    weights: Weights,
    settings: Settings,
    prepared: Prepared,
    media: MediaReader | None,
    timed: Callable[[str], AbstractContextManager[None]],
) -> LoadedParts:
    """All that stands over loaded weights, which are closed where this fails.

    media: that is being loaded beside them
    timed: notes how long a part takes
    """
    backend, draft = open_backend(weights, settings, prepared), None
    try:
        _compile_default(settings, backend)
        with timed("draft"):
            try:
                draft = open_draft(settings, prepared, backend)
            except WorkerError as error:
                if settings.uses_heads or not prepared.uses_heads:
                    raise
                prepared = msgspec.structs.replace(prepared, guesses="auto")
                log.get("load").warning("the file's MTP heads are not used", reason=str(error))
        with timed("store"):
            store = open_store(settings, prepared, backend)
            recalls = prepared.guesses in ("auto", "both")
            recalled = Recalled(settings, prepared) if recalls else None
        _tell_family(prepared.config)
        with timed("calibration"):
            calibration = _calibration(settings, prepared.config)
        if media is not None:
            media.wait(backend.context.rows_together)
        native = Native(backend, draft)
        vram_bytes = gpu_bytes(prepared.devices, native)
        return LoadedParts(prepared, native, store, recalled, media, vram_bytes, calibration)
    except BaseException:
        Native(backend, draft).close()
        raise


def _compile_default(settings: Settings, backend: LlamaBackend) -> None:
    """Raise UsageError if no answer of this model can have the form that the options ask for."""
    constraint = default_constraint(settings)
    if constraint is not None:
        try:
            backend.guides.matcher_of(constraint)
        except RequestError as error:
            raise unusable_default(error) from None


def _tell_family(config: ModelConfig) -> None:
    """A model that was trained for decisions knows another form of questions, which its file has
    or not."""
    if config.decision_type is not None and config.decision_form is None:
        family = config.decision_type[:40]
        log.get("load").warning(
            "a decision model is asked as any chat model",
            console=f"Decisions ask this {family} model with the worker's own prompts: its file "
            f"has no {DECISION_TEMPLATE} template with those that it was trained on.",
            family=family,
        )


def _calibration(settings: Settings, config: ModelConfig) -> DecisionCalibration | None:
    """What was measured for this file's decisions; of one that cannot be used a line in the log."""
    if not settings.decisions_calibration:
        return None
    try:
        found = load_calibration(config.files)
    except CalibrationError as error:
        log.get("load").warning(
            "decisions are not calibrated", console=str(error), reason=str(error)
        )
        return None
    if found is not None:
        log.get("load").info("decisions are calibrated", temperatures=found.temperatures)
    return found


def _drafting(settings: Settings, made: LoadedParts) -> Drafting:
    draft = made.native.draft
    heads = draft if isinstance(draft, StateReader) else None
    assistant = draft if isinstance(draft, Assistant) else None
    return Drafting(
        looks_up=made.prepared.guesses in ("auto", "ngram", "both"),
        recall=made.recalled and made.recalled.recall,
        model=None if heads or assistant else draft,
        heads=heads,
        assistant=assistant,
        limits=GuessLimits(
            longest=settings.draft_max,
            longest_text=settings.ngram_max or settings.draft_max,
            least=settings.draft_p_min,
        ),
    )
