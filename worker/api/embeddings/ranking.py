"""POST /v1/rerank, /rerank, /v1/score and /score: how well texts match."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from itertools import chain

import msgspec
import numpy as np
from litestar import post
from litestar.types import ASGIApp

from worker.api.common.body import HttpRequest
from worker.api.common.preparing import Preparing
from worker.api.common.prompts import plain_tokens
from worker.api.common.vectors import (
    Tokens,
    VectorExchange,
    asked,
    check_count,
    most_of,
    text_tokens,
    usage_of_texts,
)
from worker.api.embeddings.schemas import (
    InferenceRank,
    RankedResult,
    RankedText,
    RerankReply,
    RerankRequest,
    ScoreEntry,
    ScoreList,
    ScoreRequest,
)
from worker.engine.embedding import EmbeddingRequest, normalised
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded

_PLACE = re.compile(r"\{(query|document)\}")


def pair_tokens(
    query: str, document: str, loaded: Loaded, param: str, *, most: int | None = None
) -> Sequence[int]:
    """By the file's template `rerank`, or with the tokens that the tokenizer puts around two texts.

    most  the document is cut, so that both have so many tokens

    What the texts spell out is no control token. Raises RequestError.
    """
    tokens = _pair(query, document, loaded, param)
    if most is None or len(tokens) <= most:
        return tokens
    # A shorter document may have a token more where it was cut: so it is looked again.
    spelled = loaded.backend.vocab.spelled
    own = plain_tokens(document, loaded, param)
    keep = max(0, len(own) - (len(tokens) - most))
    while len(tokens) > most and keep >= 0:
        text = b"".join(spelled[token] for token in own[:keep]).decode("utf-8", "ignore")
        tokens = _pair(query, text, loaded, param)
        keep -= max(1, len(tokens) - most)
    if len(tokens) > most:
        raise RequestError(
            f"query alone has more than the {most} tokens that are left for both.", param="query"
        )
    return tokens


def _pair(query: str, document: str, loaded: Loaded, param: str) -> list[int]:
    tokenizer, vocab = loaded.config.tokenizer, loaded.backend.vocab
    template = tokenizer.chat_templates.get("rerank") if tokenizer else None
    if template is not None:
        return _filled(template, {"query": query, "document": document}, loaded, param)
    before = [] if not vocab.adds_bos or vocab.bos is None else [vocab.bos]
    end = [] if not vocab.adds_eos or vocab.eos is None else [vocab.eos]
    between = [] if not vocab.adds_sep or vocab.sep is None else [vocab.sep]
    tokens = [*before, *plain_tokens(query, loaded, "query"), *end, *between]
    return [*tokens, *plain_tokens(document, loaded, param), *(end or between)]


def _filled(template: str, texts: dict[str, str], loaded: Loaded, param: str) -> list[int]:
    """A template with texts in it. Control tokens are those of the template alone; what stands
    between two of them is read as one text, as the model was trained with it."""
    vocab = loaded.backend.vocab
    controls = {**vocab.controls, **{vocab.name(token): token for token in vocab.end_tokens}}
    names = sorted(filter(None, controls), key=len, reverse=True)
    cuts = re.split("|".join(f"({re.escape(name)})" for name in names), template) if names else [
        template
    ]  # fmt: skip
    tokens: list[int] = []
    for part in cuts:
        if part in controls:
            tokens.append(controls[part])
        elif part:
            filled = _PLACE.sub(lambda found: texts[found[1]], part)
            tokens += plain_tokens(filled, loaded, param)
    return tokens


# A classifier of one output gives a logit, these two give a probability already.
_SOFTMAX = frozenset({"qwen3", "qwen3vl"})
_YES = "yes"


class _Match(msgspec.Struct, frozen=True):
    """What is asked of the engine, and what the score of each pair is made of."""

    request: EmbeddingRequest
    scores: Callable[[Sequence[np.ndarray]], list[float]]


def _match(
    queries: list[str], texts: list[str], loaded: Loaded, param: str, *,
    most: int | None, raw: bool,
) -> _Match:  # fmt: skip
    """queries: as many as texts, or one for all. Raises RequestError."""
    check_count(len(texts), param)
    pairs = list(zip(queries if len(queries) > 1 else queries * len(texts), texts, strict=True))
    embedder = loaded.backend.embedder
    if embedder is None or embedder.pooling == "none":
        raise RequestError(
            f"{loaded.model_id} {loaded.config.task}.",
            hint="Serve a reranker or an embedding model, or start it with --pooling mean.",
            code="no_scores",
        )
    if embedder.pooling != "rank":
        return _by_angle(queries, texts, loaded, param, most)
    tokens = [pair_tokens(query, text, loaded, param, most=most) for query, text in pairs]
    labels = [label.lower() for label in loaded.config.vectors.labels]
    output = labels.index(_YES) if _YES in labels else 0
    is_logit = embedder.width == 1 and loaded.config.architecture not in _SOFTMAX and not raw

    def scores(made: Sequence[np.ndarray]) -> list[float]:
        found = np.array([each[output] for each in made], np.float64)
        return (1 / (1 + np.exp(-found)) if is_logit else found).tolist()

    return _Match(asked(tokens, param), scores)


def _by_angle(
    queries: Sequence[str], texts: Sequence[str], loaded: Loaded, param: str, most: int | None
) -> _Match:
    """The cosine of the angle between the vectors of both."""
    tokens: list[Tokens] = [
        text_tokens(text, loaded, name, most=most)
        for text, name in chain(
            ((query, "query") for query in queries), ((text, param) for text in texts)
        )
    ]

    def scores(made: Sequence[np.ndarray]) -> list[float]:
        rows = normalised(np.stack(made)).astype(np.float64)
        asking, asked_of = rows[: len(queries)], rows[len(queries) :]
        return (asking * asked_of).sum(axis=1).clip(-1, 1).tolist()

    return _Match(asked(tokens, param), scores)


def _rerank(body: RerankRequest, loaded: Loaded) -> _Match:
    if body.query is None:
        raise RequestError("query is missing.", param="query")
    param = "documents" if body.texts is None else "texts"
    texts = _documents(body)
    if not texts:
        raise RequestError(f"{param} is missing or empty.", param=param)
    if body.top_n is not None and body.top_n < 1:
        raise RequestError("top_n must be 1 or more.", param="top_n")
    given = {
        "truncate_prompt_tokens": body.truncate_prompt_tokens,
        "max_tokens_per_doc": body.max_tokens_per_doc,
    }
    name, value = next(((n, v) for n, v in given.items() if v is not None), ("", None))
    most = most_of(value, loaded, name)
    return _match([body.query], texts, loaded, param, most=most, raw=bool(body.raw_scores))


def _documents(body: RerankRequest) -> list[str]:
    if body.texts is not None:
        return body.texts
    return [each if isinstance(each, str) else each.text for each in body.documents or ()]


_PATHS = ["/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking"]


@post(_PATHS, status_code=200, summary="Rank documents by how well they match a question")
async def rerank(request: HttpRequest, loaded: Loaded, preparing: Preparing) -> ASGIApp:
    """The best first."""
    body = await preparing.body(request, RerankRequest, loaded)
    match = await preparing.texts(request, body, loaded, _rerank, body, loaded)
    texts, shows = _documents(body), bool(body.return_documents or body.return_text)

    def reply(made: Sequence[np.ndarray]) -> object:
        scores = match.scores(made)
        order = sorted(range(len(scores)), key=lambda place: -scores[place])[: body.top_n]
        if body.texts is not None:
            return [
                InferenceRank(place, scores[place], texts[place] if shows else None)
                for place in order
            ]
        return RerankReply(
            id=f"rerank-{match.request.id}",
            model=loaded.model_id,
            results=[
                RankedResult(place, scores[place], RankedText(texts[place]) if shows else None)
                for place in order
            ],
            usage=usage_of_texts(match.request),
            meta={"billed_units": {"search_units": 1}},
        )

    return VectorExchange(match.request, request.url.path, loaded, reply)


def _score(body: ScoreRequest, loaded: Loaded) -> _Match:
    first, second = body.text_1 or body.queries, body.text_2 or body.documents
    names = ("text_1", "text_2") if body.queries is None else ("queries", "documents")
    if not first or not second:
        name = names[bool(first)]
        raise RequestError(f"{name} is missing or empty.", param=name)
    queries = [first] if isinstance(first, str) else first
    texts = [second] if isinstance(second, str) else second
    if len(queries) not in (1, len(texts)):
        raise RequestError(
            f"{names[0]} must be one text, or as many as {names[1]} has.", param=names[0]
        )
    most = most_of(body.truncate_prompt_tokens, loaded, "truncate_prompt_tokens")
    return _match(queries, texts, loaded, names[1], most=most, raw=bool(body.raw_scores))


@post(["/v1/score", "/score"], status_code=200, summary="How well two texts match (vLLM)")
async def score(request: HttpRequest, loaded: Loaded, preparing: Preparing) -> ASGIApp:
    """A score for each pair."""
    body = await preparing.body(request, ScoreRequest, loaded)
    match = await preparing.texts(request, body, loaded, _score, body, loaded)

    def reply(made: Sequence[np.ndarray]) -> ScoreList:
        return ScoreList(
            id=f"score-{match.request.id}",
            created=int(time.time()),
            model=loaded.model_id,
            data=[ScoreEntry(place, value) for place, value in enumerate(match.scores(made))],
            usage=usage_of_texts(match.request),
        )

    return VectorExchange(match.request, request.url.path, loaded, reply)
