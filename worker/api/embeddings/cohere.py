"""POST /v1/embed and /v2/embed, as Cohere's clients ask for vectors."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from worker.api.embeddings.encoding import Elements
from worker.api.embeddings.schemas import CohereMeta
from worker.api.intake.bounds import at_least, items
from worker.api.intake.embeddings import TYPES
from worker.api.intake.facts import ModelFacts
from worker.api.intake.texts import (
    CutFields,
    check_pooled,
    check_width,
    cut_of,
    embedding_request,
    texts_of,
)
from worker.budget import Budget
from worker.engine.embedding import EmbeddingRequest
from worker.errors import RequestError

FLOAT = "float"


class CohereEmbedRequest(CutFields, kw_only=True):
    """POST /v1/embed and /v2/embed. Texts that are too long are cut if nothing else is asked for.

    texts             texts
    inputs            the same as objects: {"content": [{"type": "text", "text": ...}]}
    images            of no model here
    model             anything: one worker serves one model
    embedding_types   kinds of elements; of several ones the answer has each
    output_dimension  the first so many elements, of a model that was trained for that
    max_tokens        longer texts are cut to so many tokens
    """

    texts: list[str] | None = None
    inputs: list[dict[str, Any]] | None = None
    images: list[str] | None = None
    model: str | None = None
    embedding_types: Annotated[list[str], items(len(TYPES), of={"enum": list(TYPES)})] | None = None
    output_dimension: Annotated[int | None, at_least(1)] = None
    max_tokens: Annotated[int | None, at_least(-1)] = None


class CohereEmbedReply(msgspec.Struct, kw_only=True):
    """Vectors of length 1 in the order of their texts: a list, or one for each kind of elements."""

    response_type: str
    id: str
    texts: list[str]
    embeddings: list[Elements] | dict[str, list[Elements]]
    meta: CohereMeta


def cohere_request(body: CohereEmbedRequest, facts: ModelFacts, budget: Budget) -> EmbeddingRequest:
    """Raises RequestError."""
    check_pooled(facts)
    if body.images:
        raise RequestError("This model embeds texts, not images.", param="images")
    check_width(body.output_dimension, facts, "output_dimension")
    for place, kind in enumerate(body.embedding_types or ()):
        if kind not in TYPES:
            name = f"embedding_types[{place}]"
            raise RequestError(f"{name} must be one of {', '.join(TYPES)}.", param=name)
    cut = cut_of(body, facts, usual=True, max_tokens=body.max_tokens)
    param = "inputs" if body.inputs and not body.texts else "texts"
    texts = texts_of([*(body.texts or body.inputs or ())], facts, param, budget, cut=cut)
    return embedding_request(texts, param)
