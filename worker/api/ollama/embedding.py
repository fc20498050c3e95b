"""Bodies of /api/embed and /api/embeddings."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
import numpy as np

from worker.api.intake.bounds import at_least
from worker.api.intake.facts import ModelFacts
from worker.api.intake.texts import (
    Cut,
    Inputs,
    check_vectors,
    embedding_request,
    longest_of,
    texts_of,
)
from worker.budget import Budget
from worker.engine.embedding import EmbeddingRequest


class OllamaEmbedRequest(msgspec.Struct, kw_only=True):
    """POST /api/embed.

    input       a text, or a list of texts
    model       anything: one worker serves one model
    truncate    false: a text that is too long is refused, else it is cut
    dimensions  the first so many elements, of a model that was trained for that
    """

    input: str | list[str] | None = None
    model: str | None = None
    truncate: bool | None = None
    dimensions: Annotated[int | None, at_least(1)] = None


class OllamaEmbeddingsRequest(msgspec.Struct, kw_only=True):
    """POST /api/embeddings.

    prompt  the text
    model   anything: one worker serves one model
    """

    prompt: str | None = None
    model: str | None = None


class OllamaEmbedReply(msgspec.Struct, kw_only=True):
    """Vectors of length 1 in the order of their texts; durations in nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int = 0
    prompt_eval_count: int


class OllamaEmbeddingsReply(msgspec.Struct):
    """The text's vector as the model computes it."""

    embedding: list[float]


_CUT_IT = "Leave truncate out to have it cut, or shorten it."


def embed_request(
    given: str | list[str], param: str, facts: ModelFacts, budget: Budget, *, cuts: bool
) -> EmbeddingRequest:
    cut = Cut(longest_of(facts.embedder)) if cuts else None
    pooling = check_vectors(facts)
    texts = texts_of(cast("Inputs", given), facts, param, budget, cut=cut, advice=_CUT_IT)
    return embedding_request(texts, param, per_token=pooling == "none")


def pooled_vector(vector: np.ndarray) -> np.ndarray:
    """Of a text without pooling the mean of its tokens'.

    vector: float32 [width] or [tokens, width]; the result is [width].
    """
    return vector if vector.ndim == 1 else vector.mean(axis=0)
