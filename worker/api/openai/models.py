"""GET /v1/models: the one model, in OpenAI's shape with llama-server's and vLLM's additions."""

from __future__ import annotations

import time

import msgspec
from litestar import Response, get

from worker.api.common.errors import json_response
from worker.api.common.model_ids import check_model
from worker.lifecycle.loaded import Loaded

_CREATED = int(time.time())  # when this process began to serve it


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
    """

    id: str
    aliases: tuple[str, ...]
    tags: tuple[str, ...]
    object: str = "model"
    created: int
    owned_by: str = "gguf-worker"
    max_model_len: int
    meta: Meta


class ModelList(msgspec.Struct, kw_only=True):
    """{"object": "list", "data": [...]}"""

    object: str = "list"
    data: list[ModelEntry]


def model_entry(loaded: Loaded) -> ModelEntry:
    """Read from the file's config and the loaded model."""
    config, backend = loaded.config, loaded.backend
    return ModelEntry(
        id=loaded.model_id,
        aliases=loaded.settings.alias[1:],
        tags=loaded.settings.tags,
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


@get("/v1/models", summary="The model that runs here")
async def models(loaded: Loaded) -> Response[bytes]:
    """A list of one."""
    return json_response(ModelList(data=[model_entry(loaded)]))


# Ids with a slash come raw or percent-encoded: both are one path parameter.
@get("/v1/models/{model_id:path}", summary="The model that runs here, by id")
async def model(model_id: str, loaded: Loaded) -> Response[bytes]:
    """404 for any other id."""
    check_model(model_id, loaded)
    return json_response(model_entry(loaded))
