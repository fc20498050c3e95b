"""What the APIs are told of the model that is loaded."""

from __future__ import annotations

from functools import lru_cache

from worker.api.intake.facts import ModelFacts
from worker.lifecycle.default_sampling import default_sampling
from worker.lifecycle.loaded import Loaded


@lru_cache(maxsize=1)
def facts_of(loaded: Loaded, _native: object) -> ModelFacts:
    """_native: that of `loaded`, which is another one after each sleep"""
    backend = loaded.backend
    return ModelFacts(
        model_id=loaded.model_id,
        config=loaded.config,
        settings=loaded.settings,
        sampling=default_sampling(loaded.config, loaded.settings),
        capabilities=loaded.capabilities,
        max_length=backend.max_length,
        needs_rest=backend.shape.needs_rest,
        vocab=backend.vocab,
        guides=backend.guides,
        embedder=backend.embedder,
        media=loaded.media,
        adapters=loaded.adapters,
        slots=loaded.slots,
        calibration=loaded.calibration,
    )
