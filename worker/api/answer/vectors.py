"""Vectors on their way back: one reply, once they are computed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import numpy as np

from worker.api.answer.exchange import Exchange
from worker.api.answer.shapes import error_body
from worker.api.intake.preparing import Preparing
from worker.engine.embedding import Embedded, EmbeddingRequest
from worker.engine.stream import Stream
from worker.http.replies import ErrorReply


class EmbeddingUsage(msgspec.Struct):
    """Tokens of all texts."""

    prompt_tokens: int
    total_tokens: int


def usage_of_texts(request: EmbeddingRequest) -> EmbeddingUsage:
    return EmbeddingUsage(len(request.prompt.tokens), len(request.prompt.tokens))


class VectorExchange(Exchange):
    """Waits for the vectors of a request and replies once; who leaves is heard."""

    def __init__(
        self,
        request: EmbeddingRequest,
        preparing: Preparing,
        path: str,
        reply: Callable[[Sequence[np.ndarray]], object],
    ) -> None:
        """Hand it to the engine. reply: of the vectors, in the order of the texts

        Raises RequestError, QueueFullError or UnavailableError.
        A vector is float32 [width], or [tokens, width] with one for each token.
        """
        stream = preparing.submit([request], request.params.prompt_param)
        super().__init__(stream, streaming=False)
        self._path, self._reply = path, reply

    def frames(self) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def body(self) -> object:
        return self._reply(await vectors_of(self.stream))

    def error_body(self, status: int, reply: ErrorReply) -> msgspec.Struct:
        return error_body(self._path, status, reply)


async def vectors_of(stream: Stream) -> Sequence[np.ndarray]:
    """What a request's one delta has: each float32 [width], or [tokens, width] per token."""
    (delta,) = await stream.take()
    assert isinstance(delta, Embedded)
    return delta.vectors
