"""Texts whose vectors or scores are wanted: read, checked, computed, normalised."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import msgspec
import numpy as np

from worker.api.common.exchange import Exchange
from worker.api.common.generation import submitted
from worker.api.common.prompts import check_hopeless, plain_tokens
from worker.api.common.shapes import shaped
from worker.engine.embedding import Embedded, EmbeddingRequest, cut, vectors_wanted
from worker.engine.stream import Stream
from worker.errors import RequestError
from worker.http.replies import ErrorReply
from worker.lifecycle.loaded import Loaded
from worker.limits import EMBEDDED, TOKEN_VECTORS

# What clients may send: a text, token ids, or a list of either; llama-server also has texts among
# ids, `{"prompt_string": TEXT}` and `{"content": [{"type": "text", "text": TEXT}]}`.
Inputs = str | dict[str, Any] | list[str | int | list[str | int] | dict[str, Any]] | None
Tokens = Sequence[int]
MOST_NORM = 64  # p of a p-norm


class EmbeddingUsage(msgspec.Struct):
    """Tokens of all texts."""

    prompt_tokens: int
    total_tokens: int


def check_vectors(loaded: Loaded) -> str:
    """How vectors are made. Raises RequestError where the model makes none."""
    embedder = loaded.backend.embedder
    if embedder is None:
        raise RequestError(
            f"{loaded.model_id} {loaded.config.task}.",
            hint="Start the worker with --pooling mean, and it makes vectors too.",
            code="no_vectors",
        )
    if embedder.pooling == "rank":
        raise RequestError(
            f"{loaded.model_id} {loaded.config.task}.", hint="Ask /v1/rerank.", code="no_vectors"
        )
    return embedder.pooling


def texts_of(given: Inputs, loaded: Loaded, param: str, *, most: int | None = None) -> list[Tokens]:
    """The tokens of each text. Raises RequestError that names the field `param`.

    most  a longer text is cut to so many tokens, and ends as the tokenizer ends a text
    """
    if given is None or (not given and given != ""):
        raise RequestError(f"{param} is missing or empty.", param=param)
    items: list[Any] = given if isinstance(given, list) else [given]
    if any(isinstance(item, int) for item in items):
        items = [items]
    check_count(len(items), param)
    return [_tokens(item, loaded, param, most) for item in items]


def check_count(count: int, param: str) -> None:
    """Raise RequestError for more texts than a request may have."""
    if count > EMBEDDED.most:
        raise RequestError(
            f"{param} holds {count} texts, {EMBEDDED.most} is the most.", param=param
        )


def _tokens(item: Any, loaded: Loaded, param: str, most: int | None) -> Tokens:
    if isinstance(item, str):
        return text_tokens(item, loaded, param, most=most)
    if isinstance(item, dict):
        return text_tokens(_words(cast("dict[str, Any]", item), param), loaded, param, most=most)
    pieces = cast("list[Any]", item)
    if not isinstance(item, list) or not all(isinstance(piece, int | str) for piece in pieces):
        raise RequestError(
            f"{param} must be a text, token ids, or a list of texts or of token ids.", param=param
        )
    tokens: list[int] = []
    for place, piece in enumerate(pieces):
        if isinstance(piece, int):
            tokens.append(piece)
        elif place == 0:
            tokens += text_tokens(piece, loaded, param, most=None)
        else:
            tokens += plain_tokens(piece, loaded, param)
    return tokens if most is None else tokens[:most]


def _words(item: dict[str, Any], param: str) -> str:
    """The text of an object as llama-server takes one."""
    parts: Any = item.get("content")
    if isinstance(parts, list):
        texts = [cast("dict[str, Any]", part).get("text") if isinstance(part, dict) else None
                 for part in cast("list[Any]", parts)]  # fmt: skip
        if texts and all(isinstance(text, str) for text in texts):
            return "".join(cast("list[str]", texts))
    elif isinstance(text := item.get("prompt_string"), str):
        return text
    raise RequestError(
        f"{param} holds an object without a text: prompt_string, or content with parts of text.",
        param=param,
    )


def text_tokens(text: str, loaded: Loaded, param: str, *, most: int | None) -> Tokens:
    """A text's tokens, with those that the tokenizer puts around it. What it spells out is no
    control token. most: as above"""
    if most is None:
        check_hopeless(text, len(text), loaded, param)
    vocab = loaded.backend.vocab
    tokens = vocab.tokenize(text, add_special=True, parse_special=False, param=param, bounded=True)
    return cut(tokens, most, vocab.ends_of_texts)


def most_of(truncate: int | None, loaded: Loaded, param: str) -> int | None:
    """Tokens that a text is cut to: -1 is as many as can be. Raises RequestError."""
    if truncate is None:
        return None
    longest = loaded.backend.embedder.max_length if loaded.backend.embedder else 0
    if truncate == -1:
        return longest
    if not 1 <= truncate <= longest:
        raise RequestError(f"{param} must be from 1 to {longest}, or -1 for that.", param=param)
    return truncate


def asked(texts: Sequence[Tokens], param: str, *, per_token: bool = False) -> EmbeddingRequest:
    """The engine's request. per_token: a vector for each token"""
    count = sum(map(len, texts))
    if per_token and count > TOKEN_VECTORS.most:
        raise RequestError(
            f"{param} has {count} tokens, and vectors of {TOKEN_VECTORS.most} are told at most.",
            param=param,
        )
    return vectors_wanted(texts, param, per_token=per_token)


def usage_of_texts(request: EmbeddingRequest) -> EmbeddingUsage:
    return EmbeddingUsage(len(request.prompt.tokens), len(request.prompt.tokens))


def check_width(dimensions: int | None, loaded: Loaded) -> int | None:
    """Elements that vectors are cut to. Raises RequestError where that makes no sense of them."""
    width = loaded.config.vectors.width
    if dimensions is None or dimensions == width:
        return None
    if not loaded.config.vectors.can_be_cut:
        raise RequestError(
            f"{loaded.model_id} was not trained for shorter vectors: they have {width} elements.",
            param="dimensions", hint="Leave dimensions out.",
        )  # fmt: skip
    if not 1 <= dimensions < width:
        raise RequestError(f"dimensions must be from 1 to {width}.", param="dimensions")
    return dimensions


class VectorExchange(Exchange):
    """Waits for the vectors of a request and replies once; who leaves is heard."""

    def __init__(
        self,
        request: EmbeddingRequest,
        path: str,
        loaded: Loaded,
        reply: Callable[[Sequence[np.ndarray]], object],
    ) -> None:
        """Hand it to the engine. reply: of the vectors, in the order of the texts

        Raises RequestError, QueueFullError or UnavailableError.
        """
        stream = submitted([request], loaded, request.params.prompt_param)
        super().__init__(stream, streaming=False)
        self._path, self._reply = path, reply

    def frames(self) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def body(self) -> object:
        return self._reply(await vectors_of(self.stream))

    def shaped(self, status: int, reply: ErrorReply) -> msgspec.Struct:
        return shaped(self._path, status, reply)


async def vectors_of(stream: Stream) -> Sequence[np.ndarray]:
    """What a request's one delta has."""
    (delta,) = await stream.take()
    assert isinstance(delta, Embedded)
    return delta.vectors
