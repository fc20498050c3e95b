"""GET /v1/models: the model and its adapters, in OpenAI's shape with llama-server's and vLLM's
additions."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import msgspec

from worker.api.intake.facts import ModelFacts, NamedAdapter

_CREATED = int(time.time())  # when this process began to serve it
_CREATED_AT = datetime.fromtimestamp(_CREATED, UTC).isoformat().replace("+00:00", "Z")


class Meta(msgspec.Struct):
    """What the file says about the model."""

    n_params: int
    size: int
    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    n_embd: int
    quant: str
    ftype: str
    architecture: str


class ModelEntry(msgspec.Struct, kw_only=True):
    """One entry.

    aliases, tags  its other names, and words about it, as the command line has them
    max_model_len  the longest sequence that this worker holds
    max_embedding_len  the longest text that it makes a vector of
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
    max_embedding_len: int | msgspec.UnsetType = msgspec.UNSET
    meta: Meta
    parent: str | None = None
    type: str = "model"
    display_name: str
    created_at: str = _CREATED_AT
    lifecycle: str = "active"


class ListedDetails(msgspec.Struct):
    """What Ollama's clients read of a model at llama-server's list."""

    family: str
    quantization_level: str
    format: str = "gguf"


class ListedModel(msgspec.Struct, kw_only=True):
    """A model as llama-server lists it beside OpenAI's shape.

    release_date  for TypeSafe's clients: the day since which it is served
    """

    name: str
    model: str
    type: str = "model"
    description: str
    release_date: str = _CREATED_AT[:10]
    capabilities: list[str]
    details: ListedDetails


class ModelList(msgspec.Struct, kw_only=True):
    """All of them, on one page; models: again, in llama-server's shape"""

    object: str = "list"
    data: list[ModelEntry]
    models: list[ListedModel]
    first_id: str
    last_id: str
    has_more: bool = False


def model_entry(facts: ModelFacts, adapter: NamedAdapter | None = None) -> ModelEntry:
    config = facts.config
    name = facts.model_id if adapter is None else adapter.name
    return ModelEntry(
        id=name,
        display_name=name,
        parent=None if adapter is None else facts.model_id,
        aliases=facts.settings.alias[1:] if adapter is None else (),
        tags=facts.settings.tags if adapter is None else (),
        created=_CREATED,
        max_model_len=facts.max_length,
        max_embedding_len=facts.embedder.max_length if facts.embedder else msgspec.UNSET,
        meta=Meta(
            n_params=config.n_params,
            size=config.size_bytes,
            n_ctx=facts.max_length,
            n_ctx_train=config.trained_context,
            n_vocab=facts.vocab.size,
            n_embd=config.embedding,
            quant=config.quant,
            ftype=config.quant,
            architecture=config.architecture,
        ),
    )
