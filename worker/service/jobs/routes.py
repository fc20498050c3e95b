"""The original worker's API: POST /execute, /v1/inference, /v1/jobs, /v1/infer and /cancel."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar import Request as HttpRequest
from litestar import Response, get, post
from litestar.types import ASGIApp

from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.errors import RequestError
from worker.lifecycle.worker import Worker
from worker.service import sse
from worker.service.body import read_json
from worker.service.errors import ErrorReply, json_response, log_failure, reply_of
from worker.service.exchange import Exchange
from worker.service.jobs.registry import Job, Jobs
from worker.service.jobs.schemas import (
    CancelReply,
    CancelRequest,
    End,
    Failed,
    InferReply,
    InferToken,
    JobReply,
    JobRequest,
    Started,
    Token,
    request_of,
)
from worker.service.usage import UsageCount

# HTTP status -> the original's error code; others carry their own
_CODES = {
    400: "INVALID_REQUEST",
    408: "INVALID_REQUEST",
    413: "INVALID_REQUEST",
    429: "QUEUE_FULL",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_RETRIABLE = frozenset({408, 429, 503, 504})


class JobExchange(Exchange):
    """A job's way back to its one reader; the job is forgotten when it ends, however it does."""

    def __init__(
        self, worker: Worker, jobs: Jobs, job: Job, stream: Stream, *, streaming: bool
    ) -> None:
        self._jobs = jobs
        self.job = job
        self.model = worker.model_id
        self.end_tokens = worker.backend.end_tokens
        self.usage = UsageCount(len(job.request.prompt) if job.request else 0)
        super().__init__(stream, streaming=streaming)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer, then forget the job."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._jobs.forget(self.job)

    async def deltas(self) -> AsyncIterator[Delta]:
        """All deltas to the last one; what a cancellation put behind that is not read."""
        while True:
            for delta in await self.stream.take():
                self.usage.add(delta)
                yield delta
                if delta.finish_reason:
                    return

    @abstractmethod
    def frames(self) -> AsyncIterator[bytes]:
        """The events of a streamed answer."""


class EventExchange(JobExchange):
    """started, token*, then exactly one of end and error; closed with [DONE]."""

    def event(self, value: msgspec.Struct) -> bytes:
        """One event; the data's `type` says what it is."""
        return sse.frame(value)

    async def frames(self) -> AsyncIterator[bytes]:
        """All events but an error."""
        started_at = datetime.fromtimestamp(self.job.created, UTC).isoformat()
        yield self.event(Started(self.job.id, self.model, started_at))
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
        timings = self.usage.timings()
        return End(timings.predicted_n, round(timings.predicted_ms), reason)

    def failure(self, error: Exception) -> bytes:
        """The error event."""
        body = job_reply_of(error)[1].error
        return self.event(Failed(str(body.code), body.message, bool(body.retriable)))

    async def body(self) -> object:
        """Never asked for: this is always a stream."""
        raise NotImplementedError


class NamedEventExchange(EventExchange):
    """The same as the first generation's readers want it: named events, and no [DONE]."""

    closing = b""

    def event(self, value: msgspec.Struct) -> bytes:
        """One event under its name."""
        return sse.frame(value, name=str(value.__struct_config__.tag))


class InferExchange(JobExchange):
    """POST /v1/infer: the text alone, or a token an event and [DONE]."""

    async def frames(self) -> AsyncIterator[bytes]:
        """One event for each piece of text."""
        async for delta in self.deltas():
            if delta.text:
                yield sse.frame(InferToken(delta.text))

    async def body(self) -> InferReply:
        """The whole text."""
        deltas = [delta async for delta in self.deltas()]
        times = deltas[-1].timings
        seconds = times.finished - times.submitted if times else 0.0
        text = "".join(delta.text for delta in deltas)
        return InferReply(text, self.usage.usage().completion_tokens, round(seconds * 1e3))


def job_reply_of(error: Exception) -> tuple[int, ErrorReply, dict[str, str]]:
    """(status, body, headers) of an error with the original's code and `retriable`."""
    status, reply, headers = reply_of(error)
    body = msgspec.structs.replace(
        reply.error,
        code=_CODES.get(status, reply.error.code),
        retriable=status in _RETRIABLE,
    )
    return status, ErrorReply(body), headers


def on_job_error(request: HttpRequest[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Litestar's handler for what is raised before a job runs."""
    status, reply, headers = job_reply_of(error)
    log_failure(request, status, error)
    return json_response(reply, status, headers)


def job_routes(worker: Worker, jobs: Jobs) -> list[Any]:
    """The routes, bound to their worker."""
    handlers: Any = {Exception: on_job_error}

    async def start(body: JobRequest, *, read: bool) -> tuple[Job, Stream]:
        job = jobs.open(body.job_id, read=read)
        try:
            request = await asyncio.to_thread(request_of, body, worker)
            return job, jobs.run(job, request, worker.engine)
        except BaseException:
            jobs.forget(job)
            raise

    @post("/execute", status_code=200, exception_handlers=handlers, summary="Run a job")
    async def execute(request: HttpRequest[Any, Any, Any]) -> ASGIApp:
        job, stream = await start(await read_json(request, JobRequest), read=True)
        return NamedEventExchange(worker, jobs, job, stream, streaming=True)

    @post("/v1/infer", status_code=200, exception_handlers=handlers, summary="Run a prompt")
    async def infer(request: HttpRequest[Any, Any, Any]) -> ASGIApp:
        body = await read_json(request, JobRequest)
        job, stream = await start(body, read=True)
        return InferExchange(worker, jobs, job, stream, streaming=bool(body.stream))

    @post(
        ["/v1/jobs", "/v1/inference"],
        status_code=200,
        exception_handlers=handlers,
        summary="Accept a job",
    )
    async def create(request: HttpRequest[Any, Any, Any]) -> Response[bytes]:
        job, _ = await start(await read_json(request, JobRequest), read=False)
        return json_response(JobReply(job.id, f"{request.url.path}/{job.id}/stream"))

    @get(
        ["/v1/jobs/{job_id:str}/stream", "/v1/inference/{job_id:str}/stream"],
        exception_handlers=handlers,
        summary="A job's events",
    )
    async def read(job_id: str) -> ASGIApp:
        job, stream = jobs.read(job_id)
        return EventExchange(worker, jobs, job, stream, streaming=True)

    @post("/cancel", status_code=202, exception_handlers=handlers, summary="Cancel a job")
    async def cancel(request: HttpRequest[Any, Any, Any]) -> Response[bytes]:
        body = await read_json(request, CancelRequest)
        if body.job_id is None:
            raise RequestError("job_id is missing.", param="job_id")
        return json_response(CancelReply(body.job_id, jobs.cancel(body.job_id)), 202)

    return [execute, infer, create, read, cancel]
