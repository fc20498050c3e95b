"""Facts of a model for tests that make requests ready without a worker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from worker.api.intake.facts import ModelFacts
from worker.lifecycle.adapters import ServedAdapters
from worker.lifecycle.default_sampling import default_sampling
from worker.llama.backend import LlamaBackend
from worker.model.config import load_config
from worker.model.hyperparameters import SamplingDefaults
from worker.settings import Settings


def facts_with(settings: Settings | None = None, **given: Any) -> ModelFacts:
    """Those that are given; what else is asked for is not there."""
    settings = settings or Settings()
    config = given.pop("config", None) or SimpleNamespace(sampling=SamplingDefaults())
    told: dict[str, Any] = {
        "model_id": "m",
        "capabilities": ("text-gen",),
        "max_length": 100_000,
        "needs_rest": False,
        "vocab": SimpleNamespace(size=9, pieces=[b"?"] * 99),
        "guides": None,
        "embedder": None,
        "media": None,
        "adapters": ServedAdapters(("m",), ()),
        "slots": None,
        "sampling": default_sampling(cast("Any", config), settings),
    }
    return ModelFacts(config=cast("Any", config), settings=settings, **(told | given))


def facts_over(backend: LlamaBackend, path: str | Path) -> ModelFacts:
    """Those of a file that is loaded."""
    return facts_with(
        config=load_config(path),
        max_length=backend.max_length,
        needs_rest=backend.shape.needs_rest,
        vocab=backend.vocab,
        guides=backend.guides,
    )
