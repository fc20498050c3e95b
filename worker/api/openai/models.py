"""GET /v1/models: the model and its adapters, in OpenAI's shape with llama-server's and vLLM's
additions."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import msgspec
from litestar import Response, get

from worker.api.common.errors import json_response
from worker.api.common.model_ids import named
from worker.lifecycle.adapters import Adapter
from worker.lifecycle.loaded import Loaded

_CREATED = int(time.time())  # when this process began to serve it
_CREATED_AT = datetime.fromtimestamp(_CREATED, UTC).isoformat().replace("+00:00", "Z")


class Meta(msgspec.Struct):
    """What the file says about the model."""

    n_params: int
    size: int
    n_ctx_train: int
    n_vocab: int
    n_embd: int
    quant: str
    architecture: str


class ModelEntry(msgspec.Struct, kw_only=True):
    """One entry.

    aliases, tags  its other names, and words about it, as the command line has them
    max_model_len  the longest sequence that this worker holds
    parent         of an adapter: the model's id
    type, display_name, created_at, lifecycle
                   what Anthropic's clients read
    """

    id: str
    aliases: tuple[str, ...]
    tags: tuple[str, ...]
    object: str = "model"
    created: int
    owned_by: str = "gguf-worker"
    max_model_len: int
    meta: Meta
    parent: str | None = None
    type: str = "model"
    display_name: str
    created_at: str = _CREATED_AT
    lifecycle: str = "active"


class ModelList(msgspec.Struct, kw_only=True):
    """All of them, on one page."""

    object: str = "list"
    data: list[ModelEntry]
    first_id: str
    last_id: str
    has_more: bool = False


def model_entry(loaded: Loaded, adapter: Adapter | None = None) -> ModelEntry:
    """Read from the file's config and the loaded model."""
    config, backend = loaded.config, loaded.backend
    name = loaded.model_id if adapter is None else adapter.name
    return ModelEntry(
        id=name,
        display_name=name,
        parent=None if adapter is None else loaded.model_id,
        aliases=loaded.settings.alias[1:] if adapter is None else (),
        tags=loaded.settings.tags if adapter is None else (),
        created=_CREATED,
        max_model_len=backend.max_length,
        meta=Meta(
            n_params=config.n_params,
            size=config.size_bytes,
            n_ctx_train=config.context,
            n_vocab=backend.vocab_size,
            n_embd=config.embedding,
            quant=config.quant,
            architecture=config.architecture,
        ),
    )


@get("/v1/models", summary="The model that runs here, and its adapters")
async def models(loaded: Loaded) -> Response[bytes]:
    """The model first."""
    entries = [model_entry(loaded, each) for each in (None, *loaded.adapters.all)]
    return json_response(ModelList(data=entries, first_id=entries[0].id, last_id=entries[-1].id))


# Ids with a slash come raw or percent-encoded: both are one path parameter.
@get("/v1/models/{model_id:path}", summary="The model that runs here, by id")
async def model(model_id: str, loaded: Loaded) -> Response[bytes]:
    """404 for any other id."""
    return json_response(model_entry(loaded, named(model_id, loaded)))
