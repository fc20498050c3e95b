"""POST /embed, /embed_all, /similarity and /predict, text-embeddings-inference's."""

from __future__ import annotations

from typing import Annotated

import msgspec

from worker.api.embeddings.ranking import (
    Given,
    Scoring,
    check_scores,
    match_of,
    pair_tokens,
)
from worker.api.intake.bounds import at_least
from worker.api.intake.facts import ModelFacts
from worker.api.intake.texts import (
    CutFields,
    Inputs,
    Tokens,
    check_count,
    check_pooled,
    check_vectors,
    check_width,
    cut_of,
    embedding_request,
    text_tokens,
    texts_of,
)
from worker.budget import Budget
from worker.engine.embedding import EmbeddingRequest
from worker.errors import RequestError


class EmbedRequest(CutFields, kw_only=True):
    """POST /embed and /embed_all.

    inputs      a text, a list of texts, or token ids
    model       anything: one worker serves one model
    normalize   false: vectors as the model makes them, which else have the length 1
    dimensions  the first so many elements, of a model that was trained for that
    """

    inputs: Inputs = None
    model: str | None = None
    normalize: bool | None = None
    dimensions: Annotated[int | None, at_least(1)] = None


class SimilarTexts(msgspec.Struct, kw_only=True):
    """One text, and others that are compared to it."""

    source_sentence: str
    sentences: list[str]


class SimilarityRequest(msgspec.Struct, kw_only=True):
    """POST /similarity.

    inputs      the texts
    parameters  what is done with those that are too long
    model       anything: one worker serves one model
    """

    inputs: SimilarTexts
    parameters: CutFields | None = None
    model: str | None = None


class PredictRequest(CutFields, kw_only=True):
    """POST /predict.

    inputs      a text, a pair of texts, or a list of lists of one or two
    model       anything: one worker serves one model
    raw_scores  true: what the classifier says, which else becomes numbers from 0 to 1
    """

    inputs: str | list[str | list[str]] | None = None
    model: str | None = None
    raw_scores: bool | None = None


class Prediction(msgspec.Struct):
    """What one of a classifier's outputs says."""

    score: float
    label: str


def embed_request(
    body: EmbedRequest, facts: ModelFacts, budget: Budget, *, per_token: bool
) -> EmbeddingRequest:
    (check_vectors if per_token else check_pooled)(facts)
    check_width(body.dimensions, facts)
    texts = texts_of(body.inputs, facts, "inputs", budget, cut=cut_of(body, facts))
    return embedding_request(texts, "inputs", per_token=per_token)


def similarity_of(body: SimilarityRequest, facts: ModelFacts, budget: Budget) -> Scoring:
    """Raises RequestError."""
    if not body.inputs.sentences:
        raise RequestError("inputs.sentences is empty.", param="inputs")
    source = Given("inputs.source_sentence", [body.inputs.source_sentence], is_list=False)
    others = Given("inputs.sentences", body.inputs.sentences)
    cut = cut_of(body.parameters or CutFields(), facts)
    return match_of(source, others, facts, cut, budget)


def predict_request(body: PredictRequest, facts: ModelFacts, budget: Budget) -> EmbeddingRequest:
    """Raises RequestError."""
    cut = cut_of(body, facts)
    if check_scores(facts).pooling != "rank":
        raise RequestError(
            f"{facts.model_id} {facts.config.task}.", hint="Ask /embed.", code="no_scores"
        )
    given = body.inputs
    if given is None or given == []:
        raise RequestError("inputs is missing or empty.", param="inputs")
    is_single = isinstance(given, str) or isinstance(given[0], str)
    several = [given] if is_single else given
    check_count(len(several), "inputs")
    tokens: list[Tokens] = []
    for place, texts in enumerate(several):
        name = "inputs" if is_single else f"inputs[{place}]"
        pair = [texts] if is_single and isinstance(texts, str) else texts
        if not isinstance(pair, list) or len(pair) not in (1, 2):
            raise RequestError(f"{name} must be a list of one or two texts.", param=name)
        first, *more = map(str, pair)
        tokens.append(
            pair_tokens(first, more[0], facts, (f"{name}[0]", f"{name}[1]"), cut, budget)
            if more
            else text_tokens(first, facts, name, budget, cut=cut)
        )
    return embedding_request(tokens, "inputs")
