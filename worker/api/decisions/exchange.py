"""A decision on its way back: one reply, once all questions are read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from worker.api.answer.exchange import Exchange
from worker.api.answer.shapes import error_body
from worker.api.decisions.question import AnswerReading
from worker.api.decisions.reading import Plan
from worker.api.intake.preparing import Preparing
from worker.engine.scoring import Scored
from worker.http.replies import ErrorReply


class DecisionExchange(Exchange):
    """Waits for the scores of all questions and replies once; a client that leaves frees all."""

    def __init__(
        self,
        plan: Plan,
        preparing: Preparing,
        path: str,
        reply: Callable[[Sequence[AnswerReading]], object],
    ) -> None:
        """Hand it to the engine. reply: of the readings, in the order of the questions

        Raises RequestError, QueueFullError or UnavailableError.
        """
        request = plan.request
        super().__init__(preparing.submit([request], request.params.prompt_param), streaming=False)
        self._plan, self._path, self._reply = plan, path, reply

    def frames(self) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def body(self) -> object:
        (delta,) = await self.stream.take()
        assert isinstance(delta, Scored)
        return self._reply(self._plan.readings(delta.scores))

    def error_body(self, status: int, reply: ErrorReply) -> msgspec.Struct:
        return error_body(self._path, status, reply)
