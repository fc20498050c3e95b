"""Errors on the wire: one table from what is raised to OpenAI's shape.

It needs none of the routes' modules, so the gate answers while these are still imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from worker import log
from worker.errors import (
    ContextLengthError,
    NotAuthenticatedError,
    QueueFullError,
    RateLimitError,
    RequestError,
    UnavailableError,
    WorkerError,
)

# HTTP status -> OpenAI's error type
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    499: "cancelled_error",
    500: "server_error",
    503: "unavailable_error",
    504: "timeout_error",
    507: "server_error",
}


class ErrorBody(msgspec.Struct, frozen=True):
    """What OpenAI clients read. `code` is a word, or the status where llama-server sends it.

    retriable  whether the same request may succeed later; only in the job API
    n_prompt_tokens, n_ctx
               where a prompt is too long: its tokens, and those that the context holds
    """

    message: str
    type: str
    param: str | None = None
    code: str | int | None = None
    retriable: bool | msgspec.UnsetType = msgspec.UNSET
    n_prompt_tokens: int | msgspec.UnsetType = msgspec.UNSET
    n_ctx: int | msgspec.UnsetType = msgspec.UNSET


class ErrorReply(msgspec.Struct, frozen=True):
    """{"error": {...}}, and the ids of the answer's headers, which a stream's reader may not see.

    As Anthropic's shape has them; what stands inside of `error` is OpenAI's.

    detail, message  the sentence again, where Voyage's, Jina's and Cohere's clients look for it
    """

    error: ErrorBody
    request_id: str | msgspec.UnsetType = msgspec.UNSET
    correlation_id: str | msgspec.UnsetType = msgspec.UNSET
    detail: str | msgspec.UnsetType = msgspec.UNSET
    message: str | msgspec.UnsetType = msgspec.UNSET


def reply_of_ours(error: Exception) -> tuple[int, ErrorReply, dict[str, str]]:
    """(status, body, headers) for what we raised, or nobody on purpose."""
    headers: dict[str, str] = {}
    if isinstance(error, WorkerError):
        status, code, message = error.http_status, error.code, str(error)
        param = error.param if isinstance(error, RequestError) else None
        if isinstance(error, QueueFullError | RateLimitError | UnavailableError):
            headers["retry-after"] = str(error.retry_after_s)
        if isinstance(error, NotAuthenticatedError):
            headers["www-authenticate"] = "Bearer"
        if code == "loading":  # llama-server's body, which its callers compare
            return status, ErrorReply(ErrorBody(message, _TYPES[status], code=503)), headers
    else:
        status, code, param = 500, "internal", None
        message = "The worker failed to handle this request."
    status, told, headers = reply(status, message, param, code, headers)
    if isinstance(error, ContextLengthError):
        counts = {"n_prompt_tokens": error.count, "n_ctx": error.max_length}
        told = msgspec.structs.replace(told, error=msgspec.structs.replace(told.error, **counts))
    return status, told, headers


def reply(
    status: int, message: str, param: str | None, code: str | None, headers: dict[str, str]
) -> tuple[int, ErrorReply, dict[str, str]]:
    """The same for a status that is known."""
    if status >= 500 and status != 503:
        # Openai clients retry 5xx; what failed here would fail again.
        headers["x-should-retry"] = "false"
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    ids = (msgspec.UNSET if name is None else name for name in log.request_ids())
    return status, ErrorReply(ErrorBody(message, kind, param, code), *ids), headers


HeaderFields = list[tuple[bytes, bytes]]


class WholeAnswer(NamedTuple):
    """fields: of its header, with the body's length where there is one"""

    status: int
    fields: HeaderFields
    body: bytes


# Of a request's ASGI scope; None: an application answers it.
AtOnce = Callable[[Any], WholeAnswer | None]


async def send_whole(send: Any, answer: WholeAnswer) -> None:
    status, fields, body = answer
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})
