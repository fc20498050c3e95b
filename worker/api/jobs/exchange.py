"""A job's way back to its one reader, in the three forms that the original worker had."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from worker.api.answer.errors import reply_of
from worker.api.answer.exchange import Exchange
from worker.api.answer.usage import Tally
from worker.api.intake.facts import ModelFacts
from worker.api.jobs.registry import Job, Jobs
from worker.api.jobs.schemas import End, Failed, InferReply, InferToken, Started, Token
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.http import sse
from worker.http.replies import ErrorReply

# HTTP status -> the original's error code; others carry their own
_CODES = {
    400: "INVALID_REQUEST",
    408: "INVALID_REQUEST",
    413: "INVALID_REQUEST",
    415: "INVALID_REQUEST",
    429: "QUEUE_FULL",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_RETRIABLE = frozenset({408, 429, 503, 504})


def job_reply_of(error: Exception) -> tuple[int, ErrorReply, dict[str, str]]:
    """(status, body, headers) of an error with the original's code and `retriable`."""
    status, reply, headers = reply_of(error)
    if status in _RETRIABLE:
        headers.pop("x-should-retry", None)
    body = msgspec.structs.replace(
        reply.error, code=_CODES.get(status, reply.error.code), retriable=status in _RETRIABLE
    )
    return status, msgspec.structs.replace(reply, error=body), headers


class JobExchange(Exchange):
    """A job's way back to its one reader; the job is forgotten when it ends, however it does."""

    def __init__(
        self, facts: ModelFacts, jobs: Jobs, job: Job, stream: Stream, *, streaming: bool
    ) -> None:
        self._jobs = jobs
        self.job = job
        self.end_tokens = facts.vocab.end_tokens
        self.tally = Tally(job.num_prompt, stream.ids)
        super().__init__(stream, streaming=streaming)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._jobs.forget(self.job)

    def error_reply(self, error: Exception) -> tuple[int, ErrorReply, dict[str, str]]:
        return job_reply_of(error)

    async def deltas(self) -> AsyncIterator[Delta]:
        """All deltas to the last one; what a cancellation put behind that is not read."""
        while True:
            for delta in await self.stream.take():
                self.tally.add(delta)
                yield delta
                if delta.finish_reason:
                    return


class EventExchange(JobExchange):
    """started, token*, then exactly one of end and error; closed with [DONE]."""

    def event(self, value: msgspec.Struct) -> bytes:
        return sse.frame(value)

    async def frames(self) -> AsyncIterator[bytes]:
        """All events but an error."""
        started_at = datetime.fromtimestamp(self.job.created, UTC).isoformat()
        yield self.event(Started(self.job.id, self.job.model, started_at))
        count = 0
        async for delta in self.deltas():
            if delta.text:
                yield self.event(Token(delta.text, count))
                count += 1
            if delta.finish_reason:
                yield self.event(self._end(delta))

    def _end(self, delta: Delta) -> End:
        reason = "MAX_TOKENS"
        if delta.finish_reason == "stop":
            reason = "EOS" if delta.token in self.end_tokens else "STOP_SEQUENCE"
        tally = self.tally
        time_ms = round(tally.sampling_s * 1e3)
        trace = self.job.cache_trace
        return End(tally.num_sampled, time_ms, reason, tally.num_cached or 0, trace)

    def failure(self, error: Exception) -> bytes:
        reply = self.error_reply(error)[1]
        body, ids = reply.error, (reply.request_id, reply.correlation_id)
        return self.event(Failed(str(body.code), body.message, bool(body.retriable), *ids))

    async def body(self) -> object:
        """Never asked for: this is always a stream."""
        raise NotImplementedError


class NamedEventExchange(EventExchange):
    """The same as the first generation's readers want it: named events, and no [DONE]."""

    closing = b""

    def event(self, value: msgspec.Struct) -> bytes:
        return sse.frame(value, name=str(value.__struct_config__.tag))


class InferExchange(JobExchange):
    """POST /v1/infer: the text alone, or a token an event and [DONE]."""

    async def frames(self) -> AsyncIterator[bytes]:
        """One event for each piece of text."""
        async for delta in self.deltas():
            if delta.text:
                yield sse.frame(InferToken(delta.text))

    async def body(self) -> InferReply:
        text = "".join([delta.text async for delta in self.deltas()])
        tally = self.tally
        time_ms = round(tally.whole_s * 1e3)
        trace = self.job.cache_trace
        return InferReply(text, tally.num_sampled, time_ms, tally.num_cached or 0, trace)
