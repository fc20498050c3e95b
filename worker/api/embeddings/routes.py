"""POST /v1/embeddings, vLLM's /pooling, and the paths of Cohere, Jina, Voyage and TEI."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from litestar import post
from litestar.types import ASGIApp

from worker.api.answer.vectors import VectorExchange, usage_of_texts
from worker.api.described import JSON, Api, Described
from worker.api.embeddings.cohere import FLOAT, CohereEmbedReply, CohereEmbedRequest, cohere_request
from worker.api.embeddings.encoding import Elements, encode
from worker.api.embeddings.ranking import (
    chances,
    documents_of,
    meta_of,
    rerank_of,
    score_of,
)
from worker.api.embeddings.schemas import (
    EmbeddingEntry,
    EmbeddingList,
    InferenceRank,
    PooledEntry,
    PooledList,
    RankedResult,
    RankedText,
    RerankReply,
    RerankRequest,
    ScoreEntry,
    ScoreList,
    ScoreRequest,
    VoyageRank,
)
from worker.api.embeddings.tei import (
    EmbedRequest,
    Prediction,
    PredictRequest,
    SimilarityRequest,
    embed_request,
    predict_request,
    similarity_of,
)
from worker.api.intake.body import HttpRequest
from worker.api.intake.embeddings import BASE64, EmbeddingsRequest, finish, vectors_request
from worker.api.intake.facts import ModelFacts
from worker.api.intake.origins import Asker
from worker.api.intake.preparing import Preparing
from worker.api.intake.texts import (
    check_pooled,
    check_width,
)
from worker.engine.embedding import normalise


def _encode(vector: np.ndarray, body: EmbeddingsRequest) -> Any:
    kinds = (body.output_dtype, body.embedding_type)
    kind = next((kind for kind in kinds if kind not in (None, BASE64)), "float")
    return encode(vector, kind, as_text=BASE64 in (body.encoding_format, body.embedding_type))


@post("/v1/embeddings", status_code=200, summary="Embeddings (OpenAI)")
async def embeddings(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """One for each text."""
    body = await preparing.body(request, EmbeddingsRequest)
    check_pooled(facts)
    wanted = await preparing.texts(
        request, body, facts, lambda budget: vectors_request(body, facts, budget)
    )

    def reply(vectors: Sequence[np.ndarray]) -> EmbeddingList:
        entries = [
            EmbeddingEntry(place, _encode(finish(vector, body, facts), body))
            for place, vector in enumerate(vectors)
        ]
        return EmbeddingList(data=entries, model=facts.model_id, usage=usage_of_texts(wanted))

    return VectorExchange(wanted, preparing, request.url.path, reply)


@post("/pooling", status_code=200, summary="Vectors of tokens (vLLM)")
async def token_vectors(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """One for each token of each text, as the model computes it."""
    body = await preparing.body(request, EmbeddingsRequest)
    wanted = await preparing.texts(
        request, body, facts, lambda budget: vectors_request(body, facts, budget, per_token=True)
    )

    def reply(vectors: Sequence[np.ndarray]) -> PooledList:
        made = (finish(vector, body, facts, -1) for vector in vectors)
        return PooledList(
            id=f"pool-{wanted.id}",
            created=int(time.time()),
            data=[PooledEntry(place, _encode(rows, body)) for place, rows in enumerate(made)],
            model=facts.model_id,
            usage=usage_of_texts(wanted),
        )

    return VectorExchange(wanted, preparing, request.url.path, reply)


_PATHS = ["/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking"]


@post(_PATHS, status_code=200, summary="Rank documents by how well they match a question")
async def rerank(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """The best first."""
    path = request.url.path
    body = await preparing.body(request, RerankRequest)
    match = await preparing.texts(
        request, body, facts, lambda budget: rerank_of(body, path, facts, budget)
    )
    texts, shows = documents_of(body), bool(body.return_documents or body.return_text)

    def reply(made: Sequence[np.ndarray]) -> object:
        scores = match.scores(made)
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        order = order[: body.top_n or body.top_k]
        if body.texts is not None:
            return [
                InferenceRank(place, scores[place], texts[place] if shows else None)
                for place in order
            ]
        return RerankReply(
            id=f"rerank-{match.request.id}",
            model=facts.model_id,
            results=[
                RankedResult(place, scores[place], RankedText(texts[place]) if shows else None)
                for place in order
            ],
            data=[
                VoyageRank(place, scores[place], texts[place] if shows else None) for place in order
            ],
            usage=usage_of_texts(match.request),
            meta=meta_of(path, match.request, search_units=1),
        )

    return VectorExchange(match.request, preparing, path, reply)


@post(["/v1/score", "/score"], status_code=200, summary="How well two texts match (vLLM)")
async def score(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """A score for each pair."""
    body = await preparing.body(request, ScoreRequest)
    match = await preparing.texts(
        request, body, facts, lambda budget: score_of(body, facts, budget)
    )

    def reply(made: Sequence[np.ndarray]) -> ScoreList:
        return ScoreList(
            id=f"score-{match.request.id}",
            created=int(time.time()),
            model=facts.model_id,
            data=[ScoreEntry(place, value) for place, value in enumerate(match.scores(made))],
            usage=usage_of_texts(match.request),
        )

    return VectorExchange(match.request, preparing, request.url.path, reply)


@post(["/v1/embed", "/v2/embed"], status_code=200, summary="Embeddings (Cohere)")
async def cohere_embed(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """One for each text, of each kind of elements."""
    path = request.url.path
    body = await preparing.body(request, CohereEmbedRequest)
    wanted = await preparing.texts(
        request, body, facts, lambda budget: cohere_request(body, facts, budget)
    )
    kinds = body.embedding_types or (None if path.startswith("/v1/") else [FLOAT])

    def reply(vectors: Sequence[np.ndarray]) -> CohereEmbedReply:
        made = [normalise(vector, 2, body.output_dimension) for vector in vectors]

        def of(kind: str) -> list[Elements]:
            if kind == BASE64:
                return [encode(vector, as_text=True) for vector in made]
            return [encode(vector, kind) for vector in made]

        return CohereEmbedReply(
            response_type="embeddings_floats" if kinds is None else "embeddings_by_type",
            id=wanted.id,
            texts=body.texts or [],
            embeddings=of(FLOAT) if kinds is None else {kind: of(kind) for kind in kinds},
            meta=meta_of(path, wanted, input_tokens=len(wanted.prompt.tokens)),
        )

    return VectorExchange(wanted, preparing, path, reply)


@post("/embed", status_code=200, summary="Embeddings (text-embeddings-inference)")
async def tei_embed(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """A list of one for each text."""
    body = await preparing.body(request, EmbedRequest)
    wanted = await preparing.texts(
        request, body, facts, lambda budget: embed_request(body, facts, budget, per_token=False)
    )
    norm, width = -1 if body.normalize is False else 2, check_width(body.dimensions, facts)

    def reply(vectors: Sequence[np.ndarray]) -> list[list[float]]:
        return [normalise(vector, norm, width).tolist() for vector in vectors]

    return VectorExchange(wanted, preparing, request.url.path, reply)


@post("/embed_all", status_code=200, summary="Vectors of tokens (text-embeddings-inference)")
async def tei_embed_all(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """A list for each text, with one for each of its tokens, as the model computes it."""
    body = await preparing.body(request, EmbedRequest)
    wanted = await preparing.texts(
        request, body, facts, lambda budget: embed_request(body, facts, budget, per_token=True)
    )

    def reply(vectors: Sequence[np.ndarray]) -> list[list[list[float]]]:
        return [rows.tolist() for rows in vectors]

    return VectorExchange(wanted, preparing, request.url.path, reply)


@post("/similarity", status_code=200, summary="How alike texts are (text-embeddings-inference)")
async def tei_similarity(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """A number for each text."""
    body = await preparing.body(request, SimilarityRequest)
    match = await preparing.texts(
        request, body, facts, lambda budget: similarity_of(body, facts, budget)
    )
    return VectorExchange(match.request, preparing, request.url.path, match.scores)


@post("/predict", status_code=200, summary="Classify texts (text-embeddings-inference)")
async def tei_predict(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """A list for each text or pair, the best first; of a single one its list."""
    body = await preparing.body(request, PredictRequest)
    wanted = await preparing.texts(
        request, body, facts, lambda budget: predict_request(body, facts, budget)
    )
    labels = facts.config.vectors.labels

    def predictions(outputs: np.ndarray) -> list[Prediction]:
        found = outputs.astype(np.float64)
        scores = found if body.raw_scores else chances(found, facts.config)
        made = [
            Prediction(float(score), labels[place] if place < len(labels) else f"LABEL_{place}")
            for place, score in enumerate(scores)
        ]
        return sorted(made, key=lambda each: -each.score)

    def reply(made: Sequence[np.ndarray]) -> list[Prediction | list[Prediction]]:
        found = [predictions(outputs) for outputs in made]
        is_batch = isinstance(body.inputs, list) and isinstance(body.inputs[0], list)
        return [*found] if is_batch else [*found[0]]

    return VectorExchange(wanted, preparing, request.url.path, reply)


_RAIN: dict[str, Any] = {"input": ["Once it rains.", "The sky is clear."]}
_QUESTION = "What is wet?"
_NOTES = "Of embedding models, and of others with `--pooling`."

API = Api(
    name="Embeddings",
    text="Embeddings, reranking and scoring, for clients of OpenAI, vLLM, "
    "Cohere, Jina, Voyage and text-embeddings-inference.",
    routes=(
        Described(
            handler=embeddings,
            asker=Asker.NAMED,
            takes=EmbeddingsRequest,
            needs=("input",),
            gives={JSON: EmbeddingList},
            notes=_NOTES,
            examples={
                "two texts": _RAIN,
                "token ids": {"input": [[1, 40], [1, 50, 60]]},
                "base64": {**_RAIN, "encoding_format": "base64"},
                "cut": {"input": "Once it rains.", "truncate_prompt_tokens": 3},
            },
        ),
        Described(
            handler=token_vectors,
            asker=Asker.NAMED,
            takes=EmbeddingsRequest,
            needs=("input",),
            gives={JSON: PooledList},
            notes=_NOTES,
            examples={"two texts": _RAIN},
        ),
        Described(
            handler=rerank,
            asker=Asker.NAMED,
            takes=RerankRequest,
            needs=("query",),
            gives={JSON: RerankReply | list[InferenceRank]},
            notes="By a reranker's scores, or by the cosine of an embedding model's vectors.",
            examples={
                "documents": {"query": _QUESTION, "documents": _RAIN["input"], "top_n": 1},
                "texts": {"query": _QUESTION, "texts": _RAIN["input"], "return_text": True},
            },
        ),
        Described(
            handler=score,
            asker=Asker.NAMED,
            takes=ScoreRequest,
            gives={JSON: ScoreList},
            notes="By a reranker's scores, or by the cosine of an embedding model's vectors.",
            examples={"pair": {"text_1": _QUESTION, "text_2": "Once it rains."}},
        ),
        Described(
            handler=cohere_embed,
            asker=Asker.NAMED,
            takes=CohereEmbedRequest,
            gives={JSON: CohereEmbedReply},
            notes=_NOTES,
            examples={
                "texts": {"texts": _RAIN["input"]},
                "bits": {"texts": _RAIN["input"], "embedding_types": ["float", "ubinary"]},
            },
        ),
        Described(
            handler=tei_embed,
            asker=Asker.NAMED,
            takes=EmbedRequest,
            needs=("inputs",),
            gives={JSON: list[list[float]]},
            notes=_NOTES,
            examples={"two texts": {"inputs": _RAIN["input"], "truncate": True}},
        ),
        Described(
            handler=tei_embed_all,
            asker=Asker.NAMED,
            takes=EmbedRequest,
            needs=("inputs",),
            gives={JSON: list[list[list[float]]]},
            notes=_NOTES,
            examples={"a text": {"inputs": "Once it rains."}},
        ),
        Described(
            handler=tei_similarity,
            asker=Asker.NAMED,
            takes=SimilarityRequest,
            gives={JSON: list[float]},
            notes="By a reranker's scores, or by the cosine of an embedding model's vectors.",
            examples={
                "texts": {"inputs": {"source_sentence": _QUESTION, "sentences": _RAIN["input"]}}
            },
        ),
        Described(
            handler=tei_predict,
            asker=Asker.NAMED,
            takes=PredictRequest,
            needs=("inputs",),
            gives={JSON: list[Prediction | list[Prediction]]},
            notes="Of rerankers and other files with a classifier.",
            examples={"pair": {"inputs": [[_QUESTION, "Once it rains."]]}},
        ),
    ),
)
