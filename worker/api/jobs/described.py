"""The original worker's jobs, for the description of the API."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from worker.api.common.described import EVENTS, JSON, Api, Described
from worker.api.common.refusals import BODY, ENGINE, FORMED, PROMPT, QUEUE
from worker.api.jobs.errors import job_reply_of
from worker.api.jobs.registry import UNREAD_S
from worker.api.jobs.routes import cancel, create, execute, infer, read
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
from worker.errors import (
    CancelledError,
    ConflictError,
    InferenceTimeoutError,
    NotFoundError,
    QueueFullError,
)
from worker.http.replies import ErrorReply
from worker.limits import UNREAD

_STORY: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
_TAKEN = ConflictError("A job has this id.", code="JOB_EXISTS")
_EVENTS = (Started, Token, End, Failed)
_STARTS = (*BODY, *PROMPT, _TAKEN, *QUEUE, *FORMED)

API = Api(
    name="Jobs",
    text="The original worker's API. Errors have its codes, and say whether to try again.",
    routes=(
        Described(
            handler=execute,
            takes=JobRequest,
            needs=("prompt",),
            gives={EVENTS: _EVENTS},
            refuses=_STARTS,
            reply_of=job_reply_of,
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
            reply_of=job_reply_of,
            notes="With `stream` events come as they are made.",
            examples={"story": _STORY, "stream": {**_STORY, "stream": True}},
        ),
        Described(
            handler=create,
            takes=JobRequest,
            needs=("prompt",),
            gives={JSON: JobReply},
            refuses=(*_STARTS, QueueFullError(f"{UNREAD.most} jobs wait to be read.")),
            reply_of=job_reply_of,
            notes="The job runs from now on.",
            examples={"story": _STORY},
        ),
        Described(
            handler=read,
            gives={EVENTS: _EVENTS},
            params={"job_id": Annotated[str, Meta(description="What accepted the job said.")]},
            refuses=(
                NotFoundError(
                    f"There is no such job, or not any more: it is kept for {UNREAD_S:g} s.",
                    code="JOB_NOT_FOUND",
                ),
                ConflictError("The job is being read already.", code="JOB_IS_READ"),
            ),
            reply_of=job_reply_of,
            notes="Events as those of `/execute`, but without names.",
        ),
        Described(
            handler=cancel,
            takes=CancelRequest,
            needs=("job_id",),
            gives={JSON: CancelReply},
            refuses=BODY,
            reply_of=job_reply_of,
            examples={"no such job": {"job_id": "j9"}},
        ),
    ),
)
