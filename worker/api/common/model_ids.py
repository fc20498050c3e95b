"""The model's id in a path."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from worker.errors import NotFoundError
from worker.lifecycle.loaded import Loaded

# How a path that names the model is described.
NO_MODEL = NotFoundError("Another model is served here.", code="model_not_found")
MODEL_ID = Annotated[str, Meta(description="The model's id; slashes may be raw or encoded.")]


def check_model(path: str, loaded: Loaded) -> None:
    """Raise NotFoundError unless the path parameter is the model's id or another of its names."""
    asked = str(path).removeprefix("/")
    if asked not in (loaded.model_id, *loaded.settings.alias):
        raise NotFoundError(
            f"The model {asked[:200]!r} is not served here.",
            hint=f"This worker serves {loaded.model_id!r}.",
            param="model",
            code="model_not_found",
        )
