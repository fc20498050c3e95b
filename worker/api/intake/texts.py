"""Texts whose vectors or scores are wanted: read, checked, computed, normalised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, cast

import msgspec

from worker.api.intake.bounds import at_least, between
from worker.api.intake.chat.content_parts import MessageContent, check_pictures, medium_of, text_of
from worker.api.intake.facts import ModelFacts, TextEmbedder, Vocabulary
from worker.api.intake.media_inputs import MediaInputs
from worker.api.intake.prompts import check_hopeless
from worker.budget import Budget
from worker.engine.embedding import EmbeddingRequest, shorten, vectors_wanted
from worker.engine.request import Medium
from worker.errors import ContextLengthError, RequestError, quantity
from worker.limits import EMBEDDED, PRIORITY, TOKEN_VECTORS
from worker.model.vectors import LONGEST_IN_PARTS

# What clients may send: a text, token ids, or a list of either. llama-server also has texts among
# the ids of a list in the list, `{"prompt_string": TEXT}` and, as Cohere has it,
# `{"content": [{"type": "text", "text": TEXT}]}`; Jina `{"text": TEXT}`.
Inputs = str | dict[str, Any] | list[str | int | list[str | int] | dict[str, Any]] | None
Tokens = Sequence[int]
MOST_NORM = 64  # p of a p-norm
_COHERES = 999  # its last priority


def check_vectors(facts: ModelFacts) -> str:
    """How vectors are made. Raises RequestError where the model makes none."""
    embedder = facts.embedder
    if embedder is None:
        raise RequestError(
            f"{facts.model_id} {facts.config.task}.",
            hint="Start the worker with --pooling mean, and it makes embeddings too.",
            code="no_vectors",
        )
    if embedder.pooling == "rank":
        raise RequestError(
            f"{facts.model_id} {facts.config.task}.", hint="Ask /v1/rerank.", code="no_vectors"
        )
    return embedder.pooling


def check_pooled(facts: ModelFacts) -> None:
    """Raise RequestError where a text has no vector of its own."""
    if check_vectors(facts) == "none":
        raise RequestError(
            "This worker makes a vector for each token, as --pooling none says.",
            hint="Ask /embeddings, or start it with another --pooling.",
        )


class CutFields(msgspec.Struct, kw_only=True):
    """What is done with texts that are too long, in the words of several APIs.

    priority                the lower number comes first, as in vLLM; Cohere's go from 0 to 999, of
                            which more than 100 are 100 here
    truncate_prompt_tokens  vLLM's: they are cut to so many tokens; -1: to as many as can be
    truncation              Voyage's and Jina's. true: to as many as can be; false: refused
    truncate                the same; Cohere's words END and START name the end that goes, and with
                            NONE they are refused
    truncation_direction    right: the end of a text goes; left: its beginning
    truncation_side         another name of it
    """

    priority: Annotated[int | None, between(-PRIORITY.most, _COHERES)] = None
    truncate_prompt_tokens: Annotated[int | None, at_least(-1)] = None
    truncation: bool | None = None
    truncate: bool | str | None = None
    truncation_direction: str | None = None
    truncation_side: str | None = None

    def __post_init__(self) -> None:
        if self.priority is None:
            return
        if not -PRIORITY.most <= self.priority <= _COHERES:
            bounds = f"{-PRIORITY.most} to {_COHERES}"
            raise RequestError(f"priority must be a number from {bounds}.", param="priority")
        self.priority = min(self.priority, PRIORITY.most)


class Cut(msgspec.Struct, frozen=True):
    """Longer texts are cut.

    most        tokens of a text, or of the two that are compared
    from_start  the beginning goes
    of_one      tokens of the second one of two; None: as many as there is room for
    """

    most: int
    from_start: bool = False
    of_one: int | None = None


_WORDS = {"NONE": False, "END": True, "START": True}
_SIDES = {"right": False, "left": True}


def cut_of(
    fields: CutFields, facts: ModelFacts, *, usual: bool = False, **limits: int | None
) -> Cut | None:
    """How texts are cut; None: they are not. Raises RequestError that names the field.

    usual   whether they are cut where the body says nothing
    limits  other names of `truncate_prompt_tokens`: a value above the model's own limit is that one
    """
    said = fields.truncate.upper() if isinstance(fields.truncate, str) else fields.truncate
    if isinstance(said, str) and said not in _WORDS:
        raise RequestError(
            f"truncate must be true, false or {', '.join(_WORDS)}.", param="truncate"
        )
    sides: list[bool] = [said == "START"]
    for name in ("truncation_direction", "truncation_side"):
        side: str | None = getattr(fields, name)
        if side is not None and side.lower() not in _SIDES:
            raise RequestError(f"{name} must be {' or '.join(_SIDES)}.", param=name)
        sides.append(_SIDES[(side or "right").lower()])
    longest = longest_of(facts.embedder)
    counts: list[int] = []
    for name, value in ("truncate_prompt_tokens", fields.truncate_prompt_tokens), *limits.items():
        if value is not None and value != -1 and value < 1:
            raise RequestError(f"{name} must be 1 or more, or -1 for {longest}.", param=name)
        if value is not None:
            counts.append(longest if value == -1 else min(value, longest))
    words = [_WORDS[said] if isinstance(said, str) else said, fields.truncation]
    if False in words or not (counts or True in words or usual):
        return None
    return Cut(min(counts, default=longest), from_start=any(sides))


def longest_of(embedder: TextEmbedder | None) -> int:
    """Tokens of the longest text that the model takes."""
    return embedder.max_length if embedder else 0


CUT_IT = "Send truncate_prompt_tokens: -1 to have it cut, or shorten it."
_SHORTEN = "Shorten it: inputs with images are not cut."


def check_text(tokens: Tokens, facts: ModelFacts, place: str, *, advice: str = CUT_IT) -> Tokens:
    """The tokens of a text that the model takes. Raises RequestError that names its place.

    advice  the next step where it is too long
    """
    if not tokens:
        raise RequestError(f"{place} has no tokens.", param=place, hint="Leave it out.")
    if len(tokens) > longest_of(facts.embedder):
        raise _too_long(len(tokens), facts, place, advice)
    return tokens


def _too_long(count: int, facts: ModelFacts, place: str, advice: str) -> ContextLengthError:
    config, longest = facts.config, longest_of(facts.embedder)
    reach = config.context if config.only_embeds else min(config.context, LONGEST_IN_PARTS)
    if longest < reach:
        advice += f" With --ctx-size the worker takes up to {quantity(reach, 'token')}."
    return ContextLengthError(count, longest, param=place, what=place, hint=advice)


def texts_of(
    given: Inputs,
    facts: ModelFacts,
    param: str,
    budget: Budget,
    *,
    cut: Cut | None,
    advice: str = CUT_IT,
) -> list[Tokens]:
    """The tokens of each text. Raises RequestError that names the place: `input[37]`."""
    if given is None or (not given and given != ""):
        raise RequestError(f"{param} is missing or empty.", param=param)
    if not isinstance(given, list):
        return [_tokens(given, facts, param, budget, cut, advice)]
    items = cast("list[Any]", given)
    if isinstance(items[0], int):
        place = next((n for n, item in enumerate(items) if not isinstance(item, int)), None)
        if place is not None:
            raise RequestError(
                f"{param}[{place}] is no token id, as {param}[0] is.",
                param=f"{param}[{place}]",
                hint="Send a list of texts, or of lists of token ids.",
            )
        return [_tokens(items, facts, param, budget, cut, advice)]
    check_count(len(items), param)
    return [
        _tokens(item, facts, f"{param}[{place}]", budget, cut, advice)
        for place, item in enumerate(items)
    ]


def check_count(count: int, param: str) -> None:
    """Raise RequestError for more texts than a request may have."""
    if count > EMBEDDED.most:
        raise RequestError(
            f"{param} holds {count} texts, {EMBEDDED.most} is the most.", param=param
        )


def _tokens(
    item: Any, facts: ModelFacts, place: str, budget: Budget, cut: Cut | None, advice: str
) -> Tokens:
    if isinstance(item, dict):
        item = _words(cast("dict[str, Any]", item), place)
    if isinstance(item, str):
        return text_tokens(item, facts, place, budget, cut=cut, advice=advice)
    pieces = cast("list[Any]", item)
    if not isinstance(item, list) or not all(isinstance(piece, int | str) for piece in pieces):
        raise RequestError(f"{place} must be a text or a list of token ids.", param=place)
    tokens: list[int] = []
    for number, piece in enumerate(pieces):
        if isinstance(piece, int):
            tokens.append(piece)
        else:
            tokens += _part(piece, facts.vocab, place, budget, add_special=number == 0)
    size = facts.vocab.size
    if any(not 0 <= token < size for token in tokens):
        raise RequestError(f"{place} holds token ids outside 0 to {size - 1}.", param=place)
    if cut is not None and len(tokens) > cut.most:
        tokens = tokens[-cut.most :] if cut.from_start else tokens[: cut.most]
    return check_text(tokens, facts, place, advice=advice)


def _words(item: dict[str, Any], place: str) -> str:
    """The text of an object as llama-server, Cohere and Jina take one."""
    parts: Any = item.get("content")
    if isinstance(parts, list):
        texts = [
            cast("dict[str, Any]", part).get("text") if isinstance(part, dict) else None
            for part in cast("list[Any]", parts)
        ]
        if texts and all(isinstance(text, str) for text in texts):
            return "".join(cast("list[str]", texts))
    else:
        for name in ("prompt_string", "text"):
            if isinstance(text := item.get(name), str):
                return text
    raise RequestError(
        f"{place} is an object without a text: prompt_string, text, or content with parts of text.",
        param=place,
    )


def text_tokens(
    text: str,
    facts: ModelFacts,
    place: str,
    budget: Budget,
    *,
    cut: Cut | None,
    advice: str = CUT_IT,
) -> Tokens:
    """A text's tokens, with those that the tokenizer puts around it. What it spells out is no
    control token. A text that is cut still ends as the tokenizer ends one.

    Raises RequestError that names its place.
    """
    vocab = facts.vocab
    if cut is None:
        try:
            check_hopeless(text, len(text), facts, place, budget)
        except ContextLengthError as error:
            raise _too_long(error.count, facts, place, advice) from None
        tokens = _part(text, vocab, place, budget, add_special=True)
    else:
        read = partial(_part, vocab=vocab, place=place, budget=budget, add_special=True)
        tokens = shorten(
            read_near(text, cut, facts, read)[1],
            cut.most,
            vocab.ends_of_texts,
            begins=vocab.adds_bos if cut.from_start else None,
        )
    return check_text(tokens, facts, place, advice=advice)


def _part(
    text: str, vocab: Vocabulary, place: str, budget: Budget, *, add_special: bool
) -> list[int]:
    return vocab.tokenize(
        text, add_special=add_special, parse_special=False, param=place, budget=budget
    )


_ROOMY = 4  # characters of a token's bytes
_PLENTY = 2  # times the tokens that are left: those at the place of the cut may be others


def read_near(
    text: str, cut: Cut, facts: ModelFacts, read: Callable[[str], list[int]]
) -> tuple[str, list[int]]:
    """The part of a text that all tokens that are left of it are in, and the part's tokens.

    Megabytes take seconds. The part grows while it has few tokens, as spaces have in a BERT.
    """
    tokenizer = facts.config.tokenizer
    room = _ROOMY * (cut.most + 1) * (tokenizer.longest if tokenizer else 1)
    while True:
        part = text[-room:] if cut.from_start else text[:room]
        tokens = read(part)
        if len(part) == len(text) or len(tokens) >= _PLENTY * (cut.most + 1):
            return part, tokens
        room *= _ROOMY


def shows(given: Inputs) -> bool:
    """Whether one of the inputs has a part that is no text."""
    items = cast("list[Any]", given if isinstance(given, list) else [given])
    return any(
        isinstance(item, dict) and any(map(medium_of, _parts(cast("dict[str, Any]", item))))
        for item in items
    )


def _parts(item: dict[str, Any]) -> list[dict[str, Any]]:
    parts: Any = item.get("content")
    if not isinstance(parts, list):
        return []
    return [part for part in cast("list[Any]", parts) if isinstance(part, dict)]


def seen_request(given: Inputs, facts: ModelFacts, param: str, budget: Budget) -> EmbeddingRequest:
    """A vector for each input, with what its parts show. Raises RequestError that names the place;
    blocks: media are read."""
    media = MediaInputs(facts.media, budget)
    items = cast("list[Any]", given if isinstance(given, list) else [given])
    check_count(len(items), param)
    texts: list[Tokens] = []
    shown: list[tuple[Medium, ...]] = []
    for number, item in enumerate(items):
        place = f"{param}[{number}]"
        if not isinstance(item, dict):
            texts.append(_tokens(item, facts, place, budget, None, _SHORTEN))
            shown.append(())
            continue
        content = cast("MessageContent", _parts(cast("dict[str, Any]", item)))
        check_pictures(content, f"{place}.content", place, media)
        text = text_of(content, media) or ""
        tokenize = partial(_part, vocab=facts.vocab, place=place, budget=budget)
        if media.is_empty:
            texts.append(
                check_text(tokenize(text, add_special=True), facts, place, advice=_SHORTEN)
            )
            shown.append(())
            continue
        _, tokens, found = media.prompt(text, tokenize, longest_of(facts.embedder))
        texts.append(check_text(tokens, facts, place, advice=_SHORTEN))
        shown.append(found)
    return vectors_wanted(texts, param, media=shown)


def embedding_request(
    texts: Sequence[Tokens], param: str, *, per_token: bool = False
) -> EmbeddingRequest:
    """The engine's request. per_token: a vector for each token. Raises RequestError."""
    count = sum(map(len, texts))
    if per_token and count > TOKEN_VECTORS.most:
        raise RequestError(
            f"{param} has {count} tokens, and vectors of {TOKEN_VECTORS.most} are told at most.",
            param=param,
        )
    return vectors_wanted(texts, param, per_token=per_token)


def check_width(dimensions: int | None, facts: ModelFacts, param: str = "dimensions") -> int | None:
    """Elements that vectors are cut to. Raises RequestError where that makes no sense of them."""
    width = facts.config.vectors.width
    if dimensions is None or dimensions == width:
        return None
    if not facts.config.vectors.can_be_cut:
        raise RequestError(
            f"{facts.model_id} was not trained for shorter vectors: they have {width} elements.",
            param=param,
            hint=f"Leave {param} out.",
        )
    if not 1 <= dimensions < width:
        raise RequestError(f"{param} must be from 1 to {width}.", param=param)
    return dimensions
