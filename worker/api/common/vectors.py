"""Texts whose vectors or scores are wanted: read, checked, computed, normalised."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import accumulate, chain
from typing import Any

import msgspec
import numpy as np

from worker.api.common.exchange import Exchange
from worker.api.common.prompts import check_hopeless
from worker.api.common.shapes.by_path import shaped
from worker.engine.embedding import Embedded, EmbeddingRequest
from worker.engine.prompt import Prompt
from worker.engine.request import GenerationParams
from worker.engine.stream import Stream
from worker.errors import RequestError
from worker.http.replies import ErrorReply
from worker.lifecycle.loaded import Loaded
from worker.limits import EMBEDDED, TOKEN_VECTORS
from worker.requests.record import current
from worker.requests.work import RequestWork

# What clients may send: a text, token ids, or a list of either.
Inputs = str | list[str | int | list[int]] | None
Tokens = Sequence[int]
# Of a vector: none, the largest part is 32,760, or a p-norm of 1.
LARGEST, MOST_NORM = 0, 64
_INT16 = 32_760.0


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
    if isinstance(items[0], int):
        items = [items]
    if len(items) > EMBEDDED.most:
        raise RequestError(
            f"{param} holds {len(items)} texts, {EMBEDDED.most} is the most.", param=param
        )
    return [_tokens(item, loaded, param, most) for item in items]


def _tokens(item: Any, loaded: Loaded, param: str, most: int | None) -> Tokens:
    if isinstance(item, str):
        return cut(text_tokens(item, loaded, param, bounded=most is None), most, loaded)
    if not isinstance(item, list) or not all(isinstance(token, int) for token in item):
        raise RequestError(
            f"{param} must be a text, token ids, or a list of texts or of token ids.", param=param
        )
    return item if most is None else item[:most]


def text_tokens(text: str, loaded: Loaded, param: str, *, bounded: bool = True) -> list[int]:
    """A text's tokens, with those that the tokenizer puts around it. What it spells out is no
    control token. bounded: it must fit"""
    if bounded:
        check_hopeless(text, len(text), loaded, param)
    return loaded.backend.vocab.tokenize(
        text, add_special=True, parse_special=False, param=param, bounded=True
    )


def cut(tokens: list[int], most: int | None, loaded: Loaded) -> list[int]:
    """At most so many of them; those behind a text stay."""
    if most is None or len(tokens) <= most:
        return tokens
    vocab = loaded.backend.vocab
    tail = vocab.tokenize("", add_special=True, parse_special=False)[vocab.adds_bos :]
    tail = tail[-most:] if tail and tokens[-len(tail) :] == tail else []
    return [*tokens[: most - len(tail)], *tail]


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
    return EmbeddingRequest(
        id=uuid.uuid4().hex,
        prompt=Prompt(tuple(chain.from_iterable(texts))),
        ends=tuple(accumulate(map(len, texts))),
        params=GenerationParams(max_tokens=0, prompt_param=param),
        per_token=per_token,
    )


def usage_of_texts(request: EmbeddingRequest) -> EmbeddingUsage:
    """What a request read."""
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


def normalised(vector: np.ndarray, norm: int = 2, width: int | None = None) -> np.ndarray:
    """As llama-server counts: below 0 as it is, 0 the largest part 32,760, else a p-norm of 1.

    width: its first elements only. float32, also rows of them
    """
    made = vector[..., :width].astype(np.float64)
    if norm < 0:
        return made.astype(np.float32)
    if norm == LARGEST:
        length = np.abs(made).max(axis=-1, keepdims=True) / _INT16
    else:
        length = (np.abs(made) ** norm).sum(axis=-1, keepdims=True) ** (1 / norm)
    return np.divide(made, length, out=np.zeros_like(made), where=length > 0).astype(np.float32)


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
        stream = loaded.engine.submit([request], param=request.params.prompt_param)
        super().__init__(stream, streaming=False)
        self._path, self._reply = path, reply
        record = current()
        if record is not None:
            record.follow(RequestWork(stream, [request], 1, loaded.engine))

    def frames(self) -> AsyncIterator[bytes]:
        """There are none."""
        raise NotImplementedError

    async def body(self) -> object:
        """The reply."""
        return self._reply(await vectors_of(self.stream))

    def shaped(self, status: int, reply: ErrorReply) -> msgspec.Struct:
        """As the path's clients read it."""
        return shaped(self._path, status, reply)


async def vectors_of(stream: Stream) -> Sequence[np.ndarray]:
    """What a request's one delta has."""
    (delta,) = await stream.take()
    assert isinstance(delta, Embedded)
    return delta.vectors
