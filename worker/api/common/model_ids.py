"""The id of the model, or of an adapter, in a path."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from worker.errors import NotFoundError
from worker.lifecycle.adapters import Adapter
from worker.lifecycle.loaded import Loaded

# How a path that names the model is described.
NO_MODEL = NotFoundError("Another model is served here.", code="model_not_found")
MODEL_ID = Annotated[str, Meta(description="The model's id; slashes may be raw or encoded.")]


def named(path: str, loaded: Loaded) -> Adapter | None:
    """The adapter that a path parameter names, or None for the model. Raises NotFoundError."""
    return loaded.adapters.find(str(path).removeprefix("/"))
