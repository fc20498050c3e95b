"""The original worker's API: POST /execute, /v1/inference, /v1/jobs, /v1/infer and /cancel."""

from __future__ import annotations

from typing import Any

from litestar import Response, get, post
from litestar.types import ASGIApp

from worker.api.answer.errors import json_response
from worker.api.described import EVENTS, JSON, Api, Described
from worker.api.intake.body import HttpRequest, read_json
from worker.api.intake.bounds import tokens_of
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.api.intake.origins import Asker
from worker.api.intake.preparing import Preparing
from worker.api.intake.prompts import text_prompt
from worker.api.intake.sampling import sampling_of
from worker.api.jobs.exchange import EventExchange, InferExchange, NamedEventExchange, job_reply_of
from worker.api.jobs.registry import Job, Jobs
from worker.api.jobs.schemas import (
    JOB_LIMITS,
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
from worker.budget import Budget
from worker.engine.request import GenerationParams
from worker.engine.stream import Stream
from worker.errors import (
    RequestError,
)
from worker.http.replies import ErrorReply
from worker.lifecycle.worker import Worker
from worker.limits import JOB_PROMPT, JOB_STOP, JOB_STOPS
from worker.requests.record import current


def generation_of(
    body: JobRequest, max_tokens: int, facts: ModelFacts, budget: Budget
) -> Generation:
    """What the job asks for. Raises RequestError that names the field; tokenises, so it blocks.

    max_tokens: of a job, at most, and where it does not say
    """
    check_limits(body, max_tokens)
    if body.prompt is None:
        raise RequestError("prompt is missing.", param="prompt", hint="Send a text.")
    return Generation(
        prompts=(text_prompt(body.prompt, facts, "prompt", budget),),
        params=GenerationParams(
            sampling=sampling_of(body, facts, budget),
            max_tokens=body.max_tokens or _default(max_tokens, body, facts),
            stop=tuple(_stops(body)),
        ),
    )


def _default(most: int, body: JobRequest, facts: ModelFacts) -> int:
    """Tokens of a job without max_tokens."""
    default = tokens_of(n_predict=body.n_predict, default=facts.settings.n_predict)
    return min(most, default or most)


def check_limits(body: JobRequest, max_tokens: int) -> None:
    """Raise RequestError that names the first field outside the original's limits."""
    if body.operation is not None and body.operation.lower() != "infer":
        raise RequestError("operation must be infer.", param="operation")
    if body.prompt is not None and not 0 < len(body.prompt) <= JOB_PROMPT.most:
        raise RequestError(
            f"prompt must have 1 to {JOB_PROMPT.most} characters.",
            param="prompt",
            hint="/v1/completions takes longer ones.",
        )
    for name, (low, high) in {"max_tokens": (1, max_tokens), **JOB_LIMITS}.items():
        value = getattr(body, name)
        if value is not None and not low <= value <= high:
            raise RequestError(f"{name} must be from {low} to {high}.", param=name)
    stops = _stops(body)
    if len(stops) > JOB_STOPS.most or any(not 0 < len(text) <= JOB_STOP.most for text in stops):
        raise RequestError(
            f"stop must be at most {JOB_STOPS.most} texts of 1 to {JOB_STOP.most} characters.",
            param="stop",
        )


def _stops(body: JobRequest) -> list[str]:
    given = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return [text for text in given if text is not None]


async def _start(
    request: HttpRequest,
    worker: Worker,
    facts: ModelFacts,
    jobs: Jobs,
    preparing: Preparing,
    *,
    read: bool,
) -> tuple[JobRequest, Job, Stream]:
    """Read the body, open the job, make it ready, hand it to the engine.

    read: whether its request reads it
    """
    worker.loaded.check_writes()
    body = await preparing.body(request, JobRequest)
    most = worker.settings.max_tokens_out
    job = jobs.open(body.job_id, read=read)
    try:
        generation, stream = await preparing.run(
            request, body, facts, lambda budget: generation_of(body, most, facts, budget)
        )
        return body, job, jobs.run(job, generation, stream)
    except BaseException:
        jobs.forget(job)
        raise


@post("/execute", status_code=200, summary="Run a job")
async def execute(
    request: HttpRequest, worker: Worker, facts: ModelFacts, jobs: Jobs, preparing: Preparing
) -> ASGIApp:
    """Its events, each under its name."""
    _, job, stream = await _start(request, worker, facts, jobs, preparing, read=True)
    return NamedEventExchange(facts, jobs, job, stream, streaming=True)


@post("/v1/infer", status_code=200, summary="Run a prompt")
async def infer(
    request: HttpRequest, worker: Worker, facts: ModelFacts, jobs: Jobs, preparing: Preparing
) -> ASGIApp:
    """The text at once, or its tokens as events."""
    body, job, stream = await _start(request, worker, facts, jobs, preparing, read=True)
    return InferExchange(facts, jobs, job, stream, streaming=bool(body.stream))


@post(["/v1/jobs", "/v1/inference"], status_code=200, summary="Accept a job")
async def create(
    request: HttpRequest, worker: Worker, facts: ModelFacts, jobs: Jobs, preparing: Preparing
) -> Response[bytes]:
    """Where its events can be read."""
    _, job, _ = await _start(request, worker, facts, jobs, preparing, read=False)
    if (record := current()) is not None:
        record.streaming = True  # by another request
    return json_response(JobReply(job.id, f"{request.scope['path']}/{job.id}/stream"))


@get(
    ["/v1/jobs/{job_id:str}/stream", "/v1/inference/{job_id:str}/stream"], summary="A job's events"
)
async def read(job_id: str, facts: ModelFacts, jobs: Jobs) -> ASGIApp:
    """For its one reader."""
    job, stream = jobs.read(job_id)
    return EventExchange(facts, jobs, job, stream, streaming=True)


@post("/cancel", status_code=202, summary="Cancel a job")
async def cancel(request: HttpRequest, jobs: Jobs) -> Response[bytes]:
    """Safe to ask for again."""
    body = await read_json(request, CancelRequest)
    if body.job_id is None:
        raise RequestError("job_id is missing.", param="job_id")
    return json_response(CancelReply(body.job_id, jobs.cancel(body.job_id)), 202)


_STORY: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
_EVENTS = (Started, Token, End, Failed)

API = Api(
    name="Jobs",
    text="The original worker's API. Errors have its codes, and say whether to try again.",
    reply_of=job_reply_of,
    routes=(
        Described(
            handler=execute,
            asker=Asker.NAMED,
            takes=JobRequest,
            needs=("prompt",),
            gives={EVENTS: _EVENTS},
            named=True,
            notes="Events: `started`, any number of `token`, then one of `end` and `error`.",
            examples={"story": _STORY, "operation": {"operation": "infer", **_STORY}},
        ),
        Described(
            handler=infer,
            asker=Asker.NAMED,
            takes=JobRequest,
            needs=("prompt",),
            gives={JSON: InferReply, EVENTS: (InferToken, ErrorReply)},
            examples={"story": _STORY, "stream": {**_STORY, "stream": True}},
        ),
        Described(
            handler=create,
            asker=Asker.NAMED,
            takes=JobRequest,
            needs=("prompt",),
            gives={JSON: JobReply},
            notes="The job runs from now on.",
            examples={"story": _STORY},
        ),
        Described(
            handler=read,
            asker=Asker.NAMED,
            gives={EVENTS: _EVENTS},
            params={"job_id": "The id from the answer that accepted the job."},
            notes="Events as those of `/execute`, but without names.",
        ),
        Described(
            handler=cancel,
            asker=Asker.NAMED,
            wakes=False,
            takes=CancelRequest,
            needs=("job_id",),
            gives={JSON: CancelReply},
            examples={"no such job": {"job_id": "j9"}},
        ),
    ),
)
