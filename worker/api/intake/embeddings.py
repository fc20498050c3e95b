"""The body of /v1/embeddings and its twins, its request to the engine, and its vectors' norm."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from worker.api.intake.bounds import at_least, between, one_of
from worker.api.intake.facts import ModelFacts
from worker.api.intake.texts import (
    MOST_NORM,
    CutFields,
    Inputs,
    check_vectors,
    check_width,
    cut_of,
    embedding_request,
    texts_of,
)
from worker.budget import Budget
from worker.engine.embedding import EmbeddingRequest, normalise
from worker.errors import RequestError

# Of a vector's elements.
KINDS = ("float", "int8", "uint8", "binary", "ubinary")
BASE64 = "base64"
ENCODINGS = ("float", BASE64)
TYPES = (*KINDS, BASE64)


class EmbeddingsRequest(CutFields, kw_only=True):
    """POST /v1/embeddings, and vLLM's /pooling.

    input                   a text, a list of texts, token ids, or a list of lists of token ids
    model                   anything: one worker serves one model
    encoding_format   base64: of the elements' bytes, of which float32 are little-endian
    dimensions        the first so many elements, of a model that was trained for that
    output_dimension  Voyage's name of it
    output_dtype      Voyage's: elements as integers from -127 to 127 or as bits, eight in one
    embedding_type    Jina's name of it, which has base64 too
    embd_normalize    -1 not, 0 the largest element is 32,760, 1 the sum, 2 the length is 1
    """

    input: Inputs = None
    model: str | None = None
    encoding_format: Annotated[str | None, one_of(*ENCODINGS)] = None
    dimensions: Annotated[int | None, at_least(1)] = None
    output_dimension: Annotated[int | None, at_least(1)] = None
    output_dtype: Annotated[str | None, one_of(*KINDS)] = None
    embedding_type: Annotated[str | None, one_of(*TYPES)] = None
    embd_normalize: Annotated[int | None, between(-1, MOST_NORM)] = None


def vectors_request(
    body: EmbeddingsRequest,
    facts: ModelFacts,
    budget: Budget,
    *,
    param: str = "input",
    per_token: bool = False,
) -> EmbeddingRequest:
    """Raises RequestError that names the field."""
    pooling = check_vectors(facts)
    if body.encoding_format not in (None, *ENCODINGS):
        raise RequestError(
            f"encoding_format must be {' or '.join(ENCODINGS)}.", param="encoding_format"
        )
    if not -1 <= (body.embd_normalize or 0) <= MOST_NORM:
        raise RequestError(
            f"embd_normalize must be from -1 to {MOST_NORM}.", param="embd_normalize"
        )
    for name in ("output_dtype", "embedding_type"):
        kind: str | None = getattr(body, name)
        allowed = KINDS if name == "output_dtype" else TYPES
        if kind not in (None, *allowed):
            raise RequestError(f"{name} must be {' or '.join(allowed)}.", param=name)
    _width(body, facts)
    texts = texts_of(getattr(body, param), facts, param, budget, cut=cut_of(body, facts))
    return embedding_request(texts, param, per_token=per_token or pooling == "none")


def finish(
    vector: np.ndarray, body: EmbeddingsRequest, facts: ModelFacts, usual: int = 2
) -> np.ndarray:
    norm = usual if body.embd_normalize is None else body.embd_normalize
    return normalise(vector, norm, _width(body, facts))


def _width(body: EmbeddingsRequest, facts: ModelFacts) -> int | None:
    if body.dimensions is None:
        return check_width(body.output_dimension, facts, "output_dimension")
    return check_width(body.dimensions, facts)
