"""What callers of the original worker send and read, in all its generations.

Limits are those of its contract: a request outside them is refused, not cut.
"""

from __future__ import annotations

import msgspec

from worker.engine.request import SEED_RANGE, Request
from worker.errors import RequestError
from worker.lifecycle.worker import Worker
from worker.service.openai.completion_schemas import CompletionRequest, SamplingFields
from worker.service.openai.completions import requests_of
from worker.service.prompts import prompts_of

MAX_PROMPT_CHARS = 32_768
MAX_TEMPERATURE = 2.0
MAX_REPETITION_PENALTY = 2.0
MAX_STOPS = 4
MAX_STOP_CHARS = 100
MAX_SEED = 2**64 - 1


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
    """All went well. stop_reason: EOS, STOP_SEQUENCE or MAX_TOKENS."""

    tokens_out: int
    decode_time_ms: int
    stop_reason: str


class Failed(msgspec.Struct, tag_field="type", tag="error"):
    """Something did not; `retriable`: the same request may succeed later or elsewhere."""

    code: str
    message: str
    retriable: bool


class InferReply(msgspec.Struct):
    """POST /v1/infer without streaming."""

    text: str
    tokens_generated: int
    duration_ms: int


class InferToken(msgspec.Struct):
    """One event of POST /v1/infer."""

    token: str


def request_of(body: JobRequest, worker: Worker) -> Request:
    """The engine's request. Raises RequestError that names the field; tokenises, so it blocks."""
    check_limits(body, worker.settings.max_tokens_out)
    fields = {name: getattr(body, name) for name in SamplingFields.__struct_fields__}
    fields["seed"] = _folded(body.seed)
    completion = CompletionRequest(
        prompt=body.prompt,
        max_tokens=worker.settings.max_tokens_out if body.max_tokens is None else body.max_tokens,
        stop=body.stop,
        **fields,
    )
    return requests_of(completion, prompts_of(completion, worker), worker)[0]


def check_limits(body: JobRequest, max_tokens: int) -> None:
    """Raise RequestError that names the first field outside the original's limits."""
    if body.operation is not None and body.operation.lower() != "infer":
        raise RequestError("operation must be infer.", param="operation")
    if body.prompt is not None and not 0 < len(body.prompt) <= MAX_PROMPT_CHARS:
        raise RequestError(
            f"prompt must have 1 to {MAX_PROMPT_CHARS} characters.",
            param="prompt",
            hint="/v1/completions takes longer ones.",
        )
    for name, low, high in (
        ("max_tokens", 1, max_tokens),
        ("temperature", 0, MAX_TEMPERATURE),
        ("repetition_penalty", 0, MAX_REPETITION_PENALTY),
        ("seed", -1, MAX_SEED),
    ):
        value = getattr(body, name)
        if value is not None and not low <= value <= high:
            raise RequestError(f"{name} must be from {low:g} to {high:g}.", param=name)
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(stops) > MAX_STOPS or any(not 0 < len(text) <= MAX_STOP_CHARS for text in stops):
        raise RequestError(
            f"stop must be at most {MAX_STOPS} texts of 1 to {MAX_STOP_CHARS} characters.",
            param="stop",
        )


def _folded(seed: int | None) -> int | None:
    """64 bits to the engine's 32; small seeds and -1 (a random one) stay what they are."""
    if seed is None or seed < SEED_RANGE:
        return seed
    return (seed ^ seed >> 32) % SEED_RANGE
