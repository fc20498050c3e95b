"""What clients send and what they get. Null means not given."""

from __future__ import annotations

from typing import Annotated

import msgspec

from worker.api.answer.vectors import EmbeddingUsage
from worker.api.embeddings.encoding import Elements
from worker.api.intake.bounds import at_least
from worker.api.intake.texts import CutFields


class EmbeddingEntry(msgspec.Struct):
    """One text's vector, or its text in base64."""

    index: int
    embedding: Elements
    object: str = "embedding"


class EmbeddingList(msgspec.Struct, kw_only=True):
    """Vectors in the order of their texts."""

    object: str = "list"
    data: list[EmbeddingEntry]
    model: str
    usage: EmbeddingUsage


class PooledEntry(msgspec.Struct):
    """The vectors of a text's tokens; base64 of all of them."""

    index: int
    data: list[list[float]] | str
    object: str = "pooling"


class PooledList(msgspec.Struct, kw_only=True):
    """Vectors of tokens in the order of their texts."""

    id: str
    object: str = "list"
    created: int
    data: list[PooledEntry]
    model: str
    usage: EmbeddingUsage


class RankedText(msgspec.Struct):
    """A text as Cohere's and Jina's clients wrap it."""

    text: str


class RerankRequest(CutFields, kw_only=True):
    """POST /v1/rerank and /rerank.

    query             what the documents are to match
    documents         texts, or objects with a field text
    texts             the same, for clients of text-embeddings-inference, who get another answer
    model             anything: one worker serves one model
    top_n             the best so many; all where it is not given
    top_k             Voyage's name of it
    return_documents  true: each result with its document
    return_text       another name of it
    raw_scores        true: what the classifier says, which else becomes a number from 0 to 1
    max_tokens_per_doc  longer documents are cut to so many tokens
    """

    query: str | None = None
    documents: list[str | RankedText] | None = None
    texts: list[str] | None = None
    model: str | None = None
    top_n: Annotated[int | None, at_least(1)] = None
    top_k: Annotated[int | None, at_least(1)] = None
    return_documents: bool | None = None
    return_text: bool | None = None
    raw_scores: bool | None = None
    max_tokens_per_doc: Annotated[int | None, at_least(-1)] = None


class RankedResult(msgspec.Struct, omit_defaults=True):
    """How well a document matches."""

    index: int
    relevance_score: float
    document: RankedText | None = None


class VoyageRank(msgspec.Struct, omit_defaults=True):
    """The same as Voyage has it."""

    index: int
    relevance_score: float
    document: str | None = None


class CohereVersion(msgspec.Struct):
    """Of Cohere's API."""

    version: str


class CohereMeta(msgspec.Struct):
    """What Cohere counts."""

    api_version: CohereVersion
    billed_units: dict[str, int]
    tokens: dict[str, int]


class RerankReply(msgspec.Struct, kw_only=True):
    """The best first: `results` is Cohere's and Jina's, `data` Voyage's."""

    id: str
    object: str = "list"
    model: str
    results: list[RankedResult]
    data: list[VoyageRank]
    usage: EmbeddingUsage
    meta: CohereMeta


class InferenceRank(msgspec.Struct, omit_defaults=True):
    """The same as text-embeddings-inference has it."""

    index: int
    score: float
    text: str | None = None


class ScoreRequest(CutFields, kw_only=True):
    """POST /v1/score and /score: one text against each of several, or pairs of texts.

    text_1     a text, or several
    text_2     a text, or several: as many as text_1 has, where that has more than one
    queries    another name of text_1
    documents  another name of text_2
    model      anything: one worker serves one model
    raw_scores  true: what the classifier says, which else is a number from 0 to 1
    """

    text_1: str | list[str] | None = None
    text_2: str | list[str] | None = None
    queries: str | list[str] | None = None
    documents: str | list[str] | None = None
    model: str | None = None
    raw_scores: bool | None = None


class ScoreEntry(msgspec.Struct):
    """How well two texts match."""

    index: int
    score: float
    object: str = "score"


class ScoreList(msgspec.Struct, kw_only=True):
    """In the order of the texts."""

    id: str
    object: str = "list"
    created: int
    model: str
    data: list[ScoreEntry]
    usage: EmbeddingUsage
