"""What callers of the original worker send and read, in all its generations."""

from __future__ import annotations

from typing import Annotated

import msgspec

from worker.api.intake.bounds import at_least, between, characters, texts
from worker.api.intake.sampling import SamplingFields
from worker.engine.sampling import LIMITS
from worker.limits import JOB_PROMPT, JOB_STOP, JOB_STOPS
from worker.requests.trace import CacheTrace

JOB_ID = r"[A-Za-z0-9._:-]{1,128}"
# The original worker's, where they are narrower than ours or wider: field -> (lowest, highest).
JOB_LIMITS = {
    "temperature": (0.0, 2.0),
    "repetition_penalty": (LIMITS["repeat_penalty"][0], 2.0),
    "repeat_penalty": (LIMITS["repeat_penalty"][0], 2.0),
}


class JobRequest(SamplingFields, kw_only=True):
    """One prompt to continue: bare, or tagged as an operation.

    job_id      its name; a new one where it is not given
    operation   infer
    prompt      a text to continue
    max_tokens  tokens to sample at most; the worker's --max-tokens-out is the most, and counts
                where it is not given
    stop        the answer ends before the first of these
    stream      true: the tokens of POST /v1/infer as events
    """

    job_id: Annotated[str | None, characters(128, least=1, pattern=JOB_ID)] = None
    operation: str | None = None
    prompt: Annotated[str | None, characters(JOB_PROMPT.most, least=1)] = None
    max_tokens: Annotated[int | None, at_least(1)] = None
    stop: Annotated[
        str | list[str | None] | None, texts(JOB_STOPS.most, JOB_STOP.most, least=1)
    ] = None
    temperature: Annotated[float | None, between(*JOB_LIMITS["temperature"])] = None
    repetition_penalty: Annotated[float | None, between(*JOB_LIMITS["repetition_penalty"])] = None
    repeat_penalty: Annotated[float | None, between(*JOB_LIMITS["repeat_penalty"])] = None
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
    cache_trace: CacheTrace | msgspec.UnsetType = msgspec.UNSET


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
    cache_trace: CacheTrace | msgspec.UnsetType = msgspec.UNSET


class InferToken(msgspec.Struct):
    """One event of POST /v1/infer."""

    token: str
