"""What callers of the original worker send and read, in all its generations."""

from __future__ import annotations

import msgspec

from worker.service.sampling import SamplingFields


class JobRequest(SamplingFields, kw_only=True):
    """One prompt to continue: bare, or tagged as an operation."""

    job_id: str | None = None
    operation: str | None = None
    prompt: str | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None


class CancelRequest(msgspec.Struct):
    """POST /cancel."""

    job_id: str | None = None


class CancelReply(msgspec.Struct):
    """`cancelled`: there was such a job; without one there is nothing left to do."""

    job_id: str
    cancelled: bool


class JobReply(msgspec.Struct):
    """Where the job's events are."""

    job_id: str
    sse_url: str


class Started(msgspec.Struct, tag_field="type", tag="started"):
    """The first event. `started_at` is ISO 8601, in UTC."""

    job_id: str
    model: str
    started_at: str


class Token(msgspec.Struct, tag_field="type", tag="token"):
    """Text that became certain; `i` counts these events from 0."""

    t: str
    i: int


class End(msgspec.Struct, tag_field="type", tag="end"):
    """All went well. stop_reason: EOS, STOP_SEQUENCE or MAX_TOKENS.

    cached_tokens  of the prompt, that the cache gave
    """

    tokens_out: int
    decode_time_ms: int
    stop_reason: str
    cached_tokens: int


class Failed(msgspec.Struct, tag_field="type", tag="error"):
    """Something did not; `retriable`: the same request may succeed later or elsewhere.

    request_id  of the request that reads the job
    """

    code: str
    message: str
    retriable: bool
    request_id: str | msgspec.UnsetType = msgspec.UNSET
    correlation_id: str | msgspec.UnsetType = msgspec.UNSET


class InferReply(msgspec.Struct):
    """POST /v1/infer without streaming; `cached_tokens` as in `End`."""

    text: str
    tokens_generated: int
    duration_ms: int
    cached_tokens: int


class InferToken(msgspec.Struct):
    """One event of POST /v1/infer."""

    token: str
