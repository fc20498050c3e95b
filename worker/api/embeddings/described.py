"""Vectors and ranks, for the description of the API."""

from __future__ import annotations

from typing import Any

from worker.api.common.described import JSON, Api, Described
from worker.api.common.refusals import BODY, NO_SCORES, NO_VECTORS, PROMPT, QUEUE
from worker.api.embeddings.ranking import rerank, score
from worker.api.embeddings.routes import embeddings, llama_embeddings, token_vectors
from worker.api.embeddings.schemas import (
    EmbeddingList,
    EmbeddingsRequest,
    InferenceRank,
    LlamaEmbedding,
    LlamaEmbeddingRequest,
    PooledList,
    RerankReply,
    RerankRequest,
    ScoreList,
    ScoreRequest,
)

_COMPUTED = (*BODY, *PROMPT, *QUEUE)
_RAIN: dict[str, Any] = {"input": ["Once it rains.", "The sky is clear."]}
_QUESTION = "What is wet?"
_NOTES = "Of embedding models, and of others with `--pooling`."

API = Api(
    name="Vectors",
    text="Vectors of texts and how well texts match, as OpenAI's, llama-server's, vLLM's, Cohere's "
    "and Jina's clients ask for them.",
    routes=(
        Described(
            handler=embeddings,
            takes=EmbeddingsRequest,
            needs=("input",),
            gives={JSON: EmbeddingList},
            refuses=(*_COMPUTED, *NO_VECTORS),
            notes=_NOTES,
            examples={"two texts": _RAIN, "token ids": {"input": [[1, 40], [1, 50, 60]]},
                      "base64": {**_RAIN, "encoding_format": "base64"},
                      "cut": {"input": "Once it rains.", "truncate_prompt_tokens": 3}},
        ),
        Described(
            handler=llama_embeddings,
            takes=LlamaEmbeddingRequest,
            gives={JSON: list[LlamaEmbedding]},
            refuses=(*_COMPUTED, *NO_VECTORS),
            notes=_NOTES,
            examples={
                "text": {"content": "Once it rains."},
                "as it is": {**_RAIN, "embd_normalize": -1},
            },
        ),
        Described(
            handler=token_vectors,
            takes=EmbeddingsRequest,
            needs=("input",),
            gives={JSON: PooledList},
            refuses=(*_COMPUTED, *NO_VECTORS),
            notes=_NOTES,
            examples={"two texts": _RAIN},
        ),
        Described(
            handler=rerank,
            takes=RerankRequest,
            needs=("query",),
            gives={JSON: RerankReply | list[InferenceRank]},
            refuses=(*_COMPUTED, *NO_SCORES),
            notes="By a reranker's scores, or by the cosine of an embedding model's vectors.",
            examples={
                "documents": {"query": _QUESTION, "documents": _RAIN["input"], "top_n": 1},
                "texts": {"query": _QUESTION, "texts": _RAIN["input"], "return_text": True},
            },
        ),
        Described(
            handler=score,
            takes=ScoreRequest,
            gives={JSON: ScoreList},
            refuses=(*_COMPUTED, *NO_SCORES),
            notes="By a reranker's scores, or by the cosine of an embedding model's vectors.",
            examples={"pair": {"text_1": _QUESTION, "text_2": "Once it rains."}},
        ),
    ),
)  # fmt: skip
