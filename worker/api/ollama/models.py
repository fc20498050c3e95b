"""GET /api/tags, /api/ps, /api/version and POST /api/show: the one model, in Ollama's shapes."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from worker.api.intake.facts import ModelFacts
from worker.model.config import ModelConfig

# Whose API this is; clients refuse servers that seem too old for what they do.
API_VERSION = "0.12.11"
NEVER = "9999-12-31T23:59:59Z"


class ModelDetails(msgspec.Struct):
    """What the file says of the model."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class TaggedModel(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One entry.

    digest  names this state of the files; it is no hash of their content
    expires_at, size_vram, context_length  of a model that runs; it never expires
    """

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: ModelDetails
    expires_at: str | None = None
    size_vram: int | msgspec.UnsetType = msgspec.UNSET
    context_length: int | None = None


class TaggedModels(msgspec.Struct):
    """{"models": [...]}"""

    models: list[TaggedModel]


class ShownModel(msgspec.Struct):
    """POST /api/show.

    parameters    what counts where a request says nothing, a line each
    model_info    metadata under the file's own keys; the context length is that of a request now,
                  and `n_ctx_train` the file's
    capabilities  completion, embedding, vision, audio, tools, thinking, insert
    """

    modelfile: str
    parameters: str
    template: str
    license: str
    details: ModelDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class OllamaVersion(msgspec.Struct):
    """{"version": ...}"""

    version: str


def tagged_model(facts: ModelFacts, **running: Any) -> TaggedModel:
    """Read from the file's config; running: fields of a model that runs."""
    files = facts.config.files
    identities = repr([file.identity for file in files]).encode()
    return TaggedModel(
        name=facts.model_id,
        model=facts.model_id,
        modified_at=_modification_time(facts.config),
        size=sum(file.size for file in files),
        digest=hashlib.sha256(identities).hexdigest(),
        details=_details(facts.config),
        **running,
    )


def shown_model(facts: ModelFacts) -> ShownModel:
    config, tokenizer = facts.config, facts.config.tokenizer
    template = (tokenizer.chat_template if tokenizer else None) or ""
    return ShownModel(
        modelfile=f"FROM {facts.model_id}",
        parameters=f"num_ctx {facts.max_length}",
        template=template,
        license=config.license or "",
        details=_details(facts.config),
        model_info=_metadata(facts),
        capabilities=_capabilities(facts, template),
        modified_at=_modification_time(facts.config),
    )


def _details(config: ModelConfig) -> ModelDetails:
    return ModelDetails(
        parent_model="",
        format="gguf",
        family=config.architecture,
        families=[config.architecture],
        parameter_size=_short(config.n_params),
        quantization_level=config.quant,
    )


def _metadata(facts: ModelFacts) -> dict[str, Any]:
    config = facts.config
    name = config.architecture
    return {
        "general.architecture": name,
        "general.parameter_count": config.n_params,
        f"{name}.context_length": facts.max_length,
        f"{name}.n_ctx_train": config.trained_context,
        f"{name}.embedding_length": config.embedding,
        f"{name}.block_count": config.layers,
        f"{name}.attention.head_count": config.max_heads,
        f"{name}.attention.head_count_kv": config.max_kv_heads,
        f"{name}.vocab_size": config.vocab_size,
    }


def _capabilities(facts: ModelFacts, template: str) -> list[str]:
    """What clients look at before they send tools, or ask to think."""
    found = ["embedding"] if "embedding" in facts.capabilities else []
    if not facts.writes:
        return found
    found = ["completion", *found, *facts.perceives]
    found += ["tools"] if "tools" in template else []
    found += ["thinking"] if "think" in template else []
    found += ["insert"] if None not in facts.vocab.infill else []
    return found


def _modification_time(config: ModelConfig) -> str:
    newest = max(file.identity.mtime_ns for file in config.files)
    return datetime.fromtimestamp(newest / 1e9, UTC).isoformat().replace("+00:00", "Z")


def _short(count: int) -> str:
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return f"{count / 1e3:.1f}K"
