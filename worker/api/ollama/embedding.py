"""POST /api/embed and /api/embeddings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, cast

import msgspec
import numpy as np
from litestar import post
from litestar.types import ASGIApp

from worker.api.answer.errors import json_response
from worker.api.answer.vectors import VectorExchange
from worker.api.intake.body import HttpRequest
from worker.api.intake.bounds import at_least
from worker.api.intake.preparing import Preparing
from worker.api.intake.texts import (
    Cut,
    Inputs,
    asked,
    check_vectors,
    check_width,
    longest_of,
    texts_of,
)
from worker.engine.embedding import EmbeddingRequest, normalised
from worker.lifecycle.loaded import Loaded


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


def _asked(given: str | list[str], param: str, loaded: Loaded, *, cuts: bool) -> EmbeddingRequest:
    cut = Cut(longest_of(loaded)) if cuts else None
    pooling = check_vectors(loaded)
    texts = texts_of(cast("Inputs", given), loaded, param, cut=cut, advice=_CUT_IT)
    return asked(texts, param, per_token=pooling == "none")


def _one(vector: np.ndarray) -> np.ndarray:
    """Of a text without pooling the mean of its tokens'."""
    return vector if vector.ndim == 1 else vector.mean(axis=0)


@post("/api/embed", status_code=200, summary="Vectors of texts (Ollama)")
async def ollama_embed(request: HttpRequest, loaded: Loaded, preparing: Preparing) -> ASGIApp:
    """One for each text."""
    begun = time.perf_counter_ns()
    body = await preparing.body(request, OllamaEmbedRequest, loaded)
    check_vectors(loaded)
    width = check_width(body.dimensions, loaded)

    def reply(vectors: Sequence[np.ndarray], count: int) -> OllamaEmbedReply:
        return OllamaEmbedReply(
            model=loaded.model_id,
            embeddings=[normalised(_one(vector), 2, width).tolist() for vector in vectors],
            total_duration=time.perf_counter_ns() - begun,
            prompt_eval_count=count,
        )

    if not body.input:  # who asks nothing wants the model to be loaded, and here it is
        return cast("ASGIApp", json_response(reply((), 0)))
    wanted = await preparing.texts(
        request, body, loaded, lambda: _asked(
            body.input or "", "input", loaded, cuts=body.truncate is not False
        ),
    )  # fmt: skip
    count = len(wanted.prompt.tokens)
    return VectorExchange(wanted, request.url.path, loaded, lambda made: reply(made, count))


@post("/api/embeddings", status_code=200, summary="The vector of a text (Ollama)")
async def ollama_embeddings(request: HttpRequest, loaded: Loaded, preparing: Preparing) -> ASGIApp:
    """A text that is too long is cut."""
    body = await preparing.body(request, OllamaEmbeddingsRequest, loaded)
    check_vectors(loaded)
    if not body.prompt:
        return cast("ASGIApp", json_response(OllamaEmbeddingsReply([])))
    wanted = await preparing.texts(
        request, body, loaded, lambda: _asked(body.prompt or "", "prompt", loaded, cuts=True)
    )

    def reply(vectors: Sequence[np.ndarray]) -> OllamaEmbeddingsReply:
        return OllamaEmbeddingsReply(_one(vectors[0]).tolist())

    return VectorExchange(wanted, request.url.path, loaded, reply)
