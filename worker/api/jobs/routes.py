"""The original worker's API: POST /execute, /v1/inference, /v1/jobs, /v1/infer and /cancel."""

from __future__ import annotations

from typing import Any

from litestar import Response, get, post
from litestar.types import ASGIApp

from worker.api.common.body import HttpRequest, read_json
from worker.api.common.described import ENGINE, EVENTS, FORMED, JSON, PROMPT, QUEUE, Api, Described
from worker.api.common.errors import json_response
from worker.api.common.preparing import Preparing
from worker.api.jobs.exchange import EventExchange, InferExchange, NamedEventExchange, job_reply_of
from worker.api.jobs.limits import generation_of
from worker.api.jobs.registry import UNREAD_S, Job, Jobs
from worker.api.jobs.schemas import (
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
)
from worker.engine.stream import Stream
from worker.errors import (
    CancelledError,
    ConflictError,
    InferenceTimeoutError,
    NotFoundError,
    QueueFullError,
    RequestError,
)
from worker.http.replies import ErrorReply
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.limits import UNREAD
from worker.requests.record import current


async def _start(
    request: HttpRequest,
    worker: Worker,
    loaded: Loaded,
    jobs: Jobs,
    preparing: Preparing,
    *,
    read: bool,
) -> tuple[JobRequest, Job, Stream]:
    """Read the body, open the job, make it ready, hand it to the engine.

    read: whether its request reads it
    """
    loaded.check_writes()
    body = await preparing.body(request, JobRequest, loaded)
    most = worker.settings.max_tokens_out
    job = jobs.open(body.job_id, read=read)
    try:
        generation = await preparing.make(request, body, loaded, generation_of, body, most, loaded)
        return body, job, jobs.run(job, generation, loaded)
    except BaseException:
        jobs.forget(job)
        raise


@post("/execute", status_code=200, summary="Run a job")
async def execute(
    request: HttpRequest, worker: Worker, loaded: Loaded, jobs: Jobs, preparing: Preparing
) -> ASGIApp:
    """Its events, each under its name."""
    _, job, stream = await _start(request, worker, loaded, jobs, preparing, read=True)
    return NamedEventExchange(loaded, jobs, job, stream, streaming=True)


@post("/v1/infer", status_code=200, summary="Run a prompt")
async def infer(
    request: HttpRequest, worker: Worker, loaded: Loaded, jobs: Jobs, preparing: Preparing
) -> ASGIApp:
    """The text at once, or its tokens as events."""
    body, job, stream = await _start(request, worker, loaded, jobs, preparing, read=True)
    return InferExchange(loaded, jobs, job, stream, streaming=bool(body.stream))


@post(["/v1/jobs", "/v1/inference"], status_code=200, summary="Accept a job")
async def create(
    request: HttpRequest, worker: Worker, loaded: Loaded, jobs: Jobs, preparing: Preparing
) -> Response[bytes]:
    """Where its events can be read."""
    _, job, _ = await _start(request, worker, loaded, jobs, preparing, read=False)
    if (record := current()) is not None:
        record.streaming = True  # by another request
    return json_response(JobReply(job.id, f"{request.scope['path']}/{job.id}/stream"))


@get(
    ["/v1/jobs/{job_id:str}/stream", "/v1/inference/{job_id:str}/stream"], summary="A job's events"
)
async def read(job_id: str, loaded: Loaded, jobs: Jobs) -> ASGIApp:
    """For its one reader."""
    job, stream = jobs.read(job_id)
    return EventExchange(loaded, jobs, job, stream, streaming=True)


@post("/cancel", status_code=202, summary="Cancel a job")
async def cancel(request: HttpRequest, jobs: Jobs) -> Response[bytes]:
    """Safe to ask for again."""
    body = await read_json(request, CancelRequest)
    if body.job_id is None:
        raise RequestError("job_id is missing.", param="job_id")
    return json_response(CancelReply(body.job_id, jobs.cancel(body.job_id)), 202)


_STORY: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
_TAKEN = ConflictError("A job has this id.", code="JOB_EXISTS")
_EVENTS = (Started, Token, End, Failed)
_STARTS = (*PROMPT, _TAKEN, *QUEUE, *FORMED)

API = Api(
    name="Jobs",
    text="The original worker's API. Errors have its codes, and say whether to try again.",
    reply_of=job_reply_of,
    routes=(
        Described(
            handler=execute,
            takes=JobRequest,
            needs=("prompt",),
            gives={EVENTS: _EVENTS},
            refuses=_STARTS,
            named=True,
            notes="Events: `started`, any number of `token`, then one of `end` and `error`.",
            examples={"story": _STORY, "operation": {"operation": "infer", **_STORY}},
        ),
        Described(
            handler=infer,
            takes=JobRequest,
            needs=("prompt",),
            gives={JSON: InferReply, EVENTS: (InferToken, ErrorReply)},
            refuses=(
                *_STARTS,
                *ENGINE,
                CancelledError("The job was cancelled."),
                InferenceTimeoutError("The job took longer than a job may."),
            ),
            examples={"story": _STORY, "stream": {**_STORY, "stream": True}},
        ),
        Described(
            handler=create,
            takes=JobRequest,
            needs=("prompt",),
            gives={JSON: JobReply},
            refuses=(*_STARTS, QueueFullError(f"{UNREAD.most} jobs wait to be read.")),
            notes="The job runs from now on.",
            examples={"story": _STORY},
        ),
        Described(
            handler=read,
            gives={EVENTS: _EVENTS},
            params={"job_id": "What accepted the job said."},
            refuses=(
                NotFoundError(
                    f"There is no such job, or not any more: it is kept for {UNREAD_S:g} s.",
                    code="JOB_NOT_FOUND",
                ),
                ConflictError("The job is being read already.", code="JOB_IS_READ"),
            ),
            notes="Events as those of `/execute`, but without names.",
        ),
        Described(
            handler=cancel,
            takes=CancelRequest,
            needs=("job_id",),
            gives={JSON: CancelReply},
            examples={"no such job": {"job_id": "j9"}},
        ),
    ),
)
