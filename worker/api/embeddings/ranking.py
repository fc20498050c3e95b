"""POST /v1/rerank, /rerank, /v1/score and /score: how well texts match."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

import msgspec
import numpy as np

from worker.api.embeddings.schemas import (
    CohereMeta,
    CohereVersion,
    RerankRequest,
    ScoreRequest,
)
from worker.api.intake.facts import ModelFacts, TextEmbedder, Vocabulary
from worker.api.intake.prompts import plain_tokens
from worker.api.intake.texts import (
    Cut,
    Tokens,
    check_count,
    check_text,
    cut_of,
    embedding_request,
    longest_of,
    read_near,
    text_tokens,
)
from worker.budget import Budget
from worker.engine.embedding import EmbeddingRequest, normalise
from worker.errors import RequestError
from worker.model.config import ModelConfig

_PLACE = re.compile(r"\{(query|document)\}")


def pair_tokens(
    query: str,
    document: str,
    facts: ModelFacts,
    places: tuple[str, str],
    cut: Cut | None,
    budget: Budget,
) -> Tokens:
    """By the file's template `rerank`, or with the tokens that the tokenizer puts around two texts.
    What the texts spell out is no control token.

    places  what the client calls the two. Raises RequestError that names one of them.
    """
    (query, first), (document, second) = (
        _read(text, facts, place, cut, budget)
        for text, place in zip((query, document), places, strict=True)
    )
    own = len(second)
    tokenizer = facts.config.tokenizer
    template = tokenizer.chat_templates.get("rerank") if tokenizer else None
    if template is None:
        if cut is not None:
            first, second = _fit(first, second, cut.most - len(_join([], [], facts.vocab)), cut)
        tokens = _join(first, second, facts.vocab)
    else:
        texts = {"query": query, "document": document}
        tokens = _fill(template, texts, facts, places[1], budget)
        if cut is not None:
            tokens = _fill_in(template, tokens, (first, second), cut, facts, places[1], budget)
    place = places[len(tokens) - own < longest_of(facts.embedder)]
    return check_text(tokens, facts, place)


def _read(
    text: str, facts: ModelFacts, place: str, cut: Cut | None, budget: Budget
) -> tuple[str, list[int]]:
    """A text, or what may be left of it, and its tokens."""
    read = partial(plain_tokens, facts=facts, param=place, budget=budget)
    return (text, read(text)) if cut is None else read_near(text, cut, facts, read)


def _fit(
    first: Sequence[int], second: Sequence[int], room: int, cut: Cut
) -> tuple[Sequence[int], Sequence[int]]:
    """Both cut to `room` tokens together: the longer one first, then both to the half."""
    room = max(0, room)
    num_second = len(second) if cut.of_one is None else min(len(second), cut.of_one)
    num_first = min(len(first), max(room - num_second, room // 2))
    num_second = min(num_second, room - num_first)
    if cut.from_start:
        return first[len(first) - num_first :], second[len(second) - num_second :]
    return first[:num_first], second[:num_second]


def _fill_in(
    template: str, whole: list[int], pair: tuple[list[int], list[int]], cut: Cut, facts: ModelFacts,
    param: str, budget: Budget,
) -> list[int]:  # fmt: skip
    """A template with two texts that are cut. A shorter text may have a token more where it was
    cut: so it is looked again."""
    spelled = facts.vocab.spelled
    tokens, room = whole, cut.most - len(whole) + sum(map(len, pair))
    is_short = cut.of_one is None or len(pair[1]) <= cut.of_one
    while room >= 0 and (len(tokens) > cut.most or not is_short):
        texts = (
            b"".join(spelled[token] for token in part).decode("utf-8", "ignore")
            for part in _fit(*pair, room, cut)
        )
        filled: dict[str, str] = dict(zip(("query", "document"), texts, strict=True))
        tokens, is_short = _fill(template, filled, facts, param, budget), True
        room -= max(1, len(tokens) - cut.most)
    return tokens


def _join(first: Sequence[int], second: Sequence[int], vocab: Vocabulary) -> list[int]:
    before = [] if not vocab.adds_bos or vocab.bos is None else [vocab.bos]
    end = [] if not vocab.adds_eos or vocab.eos is None else [vocab.eos]
    between = [] if not vocab.adds_sep or vocab.sep is None else [vocab.sep]
    return [*before, *first, *end, *between, *second, *(end or between)]


def _fill(
    template: str, texts: dict[str, str], facts: ModelFacts, param: str, budget: Budget
) -> list[int]:
    """A template with texts in it. Control tokens are those of the template alone; what stands
    between two of them is read as one text, as the model was trained with it."""
    vocab = facts.vocab
    controls = {**vocab.controls, **{vocab.name(token): token for token in vocab.end_tokens}}
    names = sorted(filter(None, controls), key=len, reverse=True)
    cuts = (
        re.split("|".join(f"({re.escape(name)})" for name in names), template)
        if names
        else [template]
    )
    tokens: list[int] = []
    for part in cuts:
        if part in controls:
            tokens.append(controls[part])
        elif part:
            filled = _PLACE.sub(lambda found: texts[found[1]], part)
            tokens += plain_tokens(filled, facts, param, budget)
    return tokens


# A classifier of one output gives a logit, these two give a probability already.
_SOFTMAX = frozenset({"qwen3", "qwen3vl"})
_YES = "yes"


class Scoring(msgspec.Struct, frozen=True):
    """What is asked of the engine, and what the score of each pair is made of."""

    request: EmbeddingRequest
    scores: Callable[[Sequence[np.ndarray]], list[float]]


def check_scores(facts: ModelFacts) -> TextEmbedder:
    """What makes scores. Raises RequestError where the model makes none."""
    embedder = facts.embedder
    if embedder is None or embedder.pooling == "none":
        raise RequestError(
            f"{facts.model_id} {facts.config.task}.",
            hint="Serve a reranker or an embedding model, or start it with --pooling mean.",
            code="no_scores",
        )
    if embedder.pooling != "rank" and facts.config.vectors.classifies:
        raise RequestError(
            f"{facts.model_id} is a reranker that embeds now: pooling {embedder.pooling}.",
            hint="Start it with --pooling rank.",
            code="no_scores",
        )
    return embedder


def chances(outputs: np.ndarray, config: ModelConfig) -> np.ndarray:
    """A classifier's outputs as numbers from 0 to 1, of several ones with the sum 1;
    float32 [labels] as the outputs are."""
    if config.architecture in _SOFTMAX:
        return outputs
    if len(outputs) == 1:
        return 1 / (1 + np.exp(-outputs))
    powers = np.exp(outputs - outputs.max())
    return powers / powers.sum()


def match_of(
    queries: Given,
    texts: Given,
    facts: ModelFacts,
    cut: Cut | None,
    budget: Budget,
    *,
    raw: bool = False,
) -> Scoring:
    """queries: as many as texts, or one for all. Raises RequestError."""
    param = texts.name
    check_count(len(texts.texts), param)
    embedder = check_scores(facts)
    if embedder.pooling != "rank":
        return _by_angle(queries, texts, facts, cut, budget)
    asking = [*queries.placed] * (len(texts.texts) if len(queries.texts) == 1 else 1)
    tokens = [
        pair_tokens(query, text, facts, (one, other), cut, budget)
        for (query, one), (text, other) in zip(asking, texts.placed, strict=True)
    ]
    labels = [label.lower() for label in facts.config.vectors.labels]
    output = labels.index(_YES) if _YES in labels else 0

    def scores(made: Sequence[np.ndarray]) -> list[float]:
        found = [each.astype(np.float64) for each in made]
        if not raw and len(found[0]) == 1:
            found = [chances(each, facts.config) for each in found]
        return [float(each[output]) for each in found]

    return Scoring(embedding_request(tokens, param), scores)


class Given(msgspec.Struct, frozen=True):
    """Texts, and what the client calls them.

    is_list  whether it sent a list, so that each has a place in it
    """

    name: str
    texts: Sequence[str]
    is_list: bool = True

    @property
    def placed(self) -> list[tuple[str, str]]:
        """Each text with its place."""
        names = (f"{self.name}[{place}]" if self.is_list else self.name for place in count())
        return list(zip(self.texts, names, strict=False))


def _by_angle(
    queries: Given, texts: Given, facts: ModelFacts, cut: Cut | None, budget: Budget
) -> Scoring:
    """The cosine of the angle between the vectors of both."""
    least = cut and msgspec.structs.replace(cut, most=min(cut.most, cut.of_one or cut.most))
    tokens: list[Tokens] = [
        text_tokens(text, facts, place, budget, cut=how)
        for given, how in ((queries, cut), (texts, least))
        for text, place in given.placed
    ]
    num_queries = len(queries.texts)

    def scores(made: Sequence[np.ndarray]) -> list[float]:
        rows = normalise(np.stack(made)).astype(np.float64)
        asking, asked_of = rows[:num_queries], rows[num_queries:]
        return (asking * asked_of).sum(axis=1).clip(-1, 1).tolist()

    return Scoring(embedding_request(tokens, texts.name), scores)


# Where a document that is too long is cut if the body says nothing: as Cohere has it.
_CUTTING = frozenset({"/v1/rerank", "/v2/rerank"})


def rerank_of(body: RerankRequest, path: str, facts: ModelFacts, budget: Budget) -> Scoring:
    """Raises RequestError."""
    if body.query is None:
        raise RequestError("query is missing.", param="query")
    param = "documents" if body.texts is None else "texts"
    texts = documents_of(body)
    if not texts:
        raise RequestError(f"{param} is missing or empty.", param=param)
    for name in ("top_n", "top_k"):
        most: int | None = getattr(body, name)
        if most is not None and most < 1:
            raise RequestError(f"{name} must be 1 or more.", param=name)
    of_one = body.max_tokens_per_doc
    if of_one is not None and of_one != -1 and of_one < 1:
        raise RequestError(
            "max_tokens_per_doc must be 1 or more, or -1 to fit.", param="max_tokens_per_doc"
        )
    usual = of_one is not None or (path in _CUTTING and body.texts is None)
    cut = cut_of(body, facts, usual=usual)
    if cut is not None and of_one is not None and of_one > 0:
        cut = msgspec.structs.replace(cut, of_one=of_one)
    query = Given("query", [body.query], is_list=False)
    return match_of(query, Given(param, texts), facts, cut, budget, raw=bool(body.raw_scores))


def documents_of(body: RerankRequest) -> list[str]:
    if body.texts is not None:
        return body.texts
    return [each if isinstance(each, str) else each.text for each in body.documents or ()]


def meta_of(path: str, request: EmbeddingRequest, **billed: int) -> CohereMeta:
    """Of an answer in Cohere's shape; billed: what its API would put on the bill."""
    version = "2" if path.startswith("/v2/") else "1"
    count = len(request.prompt.tokens)
    return CohereMeta(CohereVersion(version), billed, {"input_tokens": count})


def score_of(body: ScoreRequest, facts: ModelFacts, budget: Budget) -> Scoring:
    """Raises RequestError."""
    first, second = body.text_1 or body.queries, body.text_2 or body.documents
    names = (
        "queries" if body.queries and not body.text_1 else "text_1",
        "documents" if body.documents and not body.text_2 else "text_2",
    )
    if not first or not second:
        name = names[bool(first)]
        raise RequestError(f"{name} is missing or empty.", param=name)
    queries, texts = (
        Given(name, [given] if isinstance(given, str) else given, is_list=isinstance(given, list))
        for name, given in zip(names, (first, second), strict=True)
    )
    if len(queries.texts) not in (1, len(texts.texts)):
        raise RequestError(
            f"{names[0]} must be one text, or as many as {names[1]} has.", param=names[0]
        )
    cut = cut_of(body, facts)
    return match_of(queries, texts, facts, cut, budget, raw=bool(body.raw_scores))
