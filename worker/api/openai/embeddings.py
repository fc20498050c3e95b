"""POST /v1/embeddings: vectors of texts."""

from __future__ import annotations

import uuid
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
from litestar import Request as HttpRequest
from litestar import Response, post

from worker.api.common.errors import json_response
from worker.api.common.preparing import Preparing
from worker.engine.embedding import Embedded, EmbeddingRequest
from worker.engine.prompt import Prompt
from worker.engine.request import GenerationParams
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded


class EmbeddingsRequest(msgspec.Struct):
    """POST /v1/embeddings.

    input  a text, or a list of texts
    model  anything: one worker serves one model
    """

    input: str | list[str] | None = None
    model: str | None = None


class EmbeddingEntry(msgspec.Struct):
    """One text's vector."""

    index: int
    embedding: list[float]
    object: str = "embedding"


class EmbeddingUsage(msgspec.Struct):
    """Tokens of all texts."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct):
    """Vectors in the order of their texts."""

    data: list[EmbeddingEntry]
    model: str
    usage: EmbeddingUsage
    object: str = "list"


def _asked(body: EmbeddingsRequest, loaded: Loaded) -> EmbeddingRequest:
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not texts:
        raise RequestError("input is missing or empty.", param="input")
    inputs = [
        loaded.backend.vocab.tokenize(
            text, add_special=True, parse_special=False, param="input", bounded=True
        )
        for text in texts
    ]
    return EmbeddingRequest(
        id=uuid.uuid4().hex,
        prompt=Prompt(tuple(token for tokens in inputs for token in tokens)),
        ends=tuple(accumulate(map(len, inputs))),
        params=GenerationParams(max_tokens=0, prompt_param="input"),
    )


@post("/v1/embeddings", status_code=200, summary="Vectors of texts (OpenAI embeddings)")
async def embeddings(
    request: HttpRequest[Any, Any, Any], loaded: Loaded, preparing: Preparing
) -> Response[bytes]:
    """One for each text."""
    body = await preparing.body(request, EmbeddingsRequest, loaded)
    asked = await preparing.make(request, body, loaded, _asked, body, loaded)
    with loaded.engine.submit([asked], param="input") as stream:
        stream.wants_all = True
        deltas = await stream.take()
    vectors = [v for delta in deltas if isinstance(delta, Embedded) for v in delta.vectors]
    vectors = [vector / max(float(np.linalg.norm(vector)), 1e-12) for vector in vectors]
    count = len(asked.prompt.tokens)
    entries = [EmbeddingEntry(place, vector.tolist()) for place, vector in enumerate(vectors)]
    return json_response(EmbeddingList(entries, loaded.model_id, EmbeddingUsage(count, count)))
