"""Errors on the wire: one table from what is raised to OpenAI's shape."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from worker import log
from worker.errors import (
    NotAuthenticatedError,
    QueueFullError,
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
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
    504: "timeout_error",
}


class ErrorBody(msgspec.Struct, frozen=True):
    """What OpenAI clients read. `code` is a word, or the status where llama-server sends it.

    retriable  whether the same request may succeed later; only in the job API
    """

    message: str
    type: str
    param: str | None = None
    code: str | int | None = None
    retriable: bool | msgspec.UnsetType = msgspec.UNSET


class ErrorReply(msgspec.Struct, frozen=True):
    """{"error": {...}}"""

    error: ErrorBody


def reply_of(error: Exception) -> tuple[int, ErrorReply, dict[str, str]]:
    """(status, body, headers) for anything that was raised."""
    headers: dict[str, str] = {}
    if isinstance(error, WorkerError):
        status, code, message = error.http_status, error.code, str(error)
        param = error.param if isinstance(error, RequestError) else None
        if isinstance(error, QueueFullError | UnavailableError):
            headers["retry-after"] = str(error.retry_after_s)
        if isinstance(error, NotAuthenticatedError):
            headers["www-authenticate"] = "Bearer"
        if code == "loading":  # llama-server's body, which its callers compare
            return status, ErrorReply(ErrorBody(message, _TYPES[status], code=503)), headers
    elif isinstance(error, HTTPException):
        status, code, param = error.status_code, None, None
        message = _MESSAGES.get(status, error.detail)
        headers = dict(error.headers or {})
    else:
        status, code, param = 500, "internal", None
        message = "The worker failed to handle this request."
    if status >= 500 and status != 503:
        # Openai clients retry 5xx; what failed here would fail again.
        headers["x-should-retry"] = "false"
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return status, ErrorReply(ErrorBody(message, kind, param, code)), headers


_MESSAGES = {
    404: "There is no such path; see /v1/models, /v1/completions,"
    " /v1/chat/completions and /health.",
    405: "This path does not take this method.",
    413: "The body is larger than this worker reads.",
}


def on_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Litestar's handler for everything that is raised in or around a route."""
    status, body, headers = reply_of(error)
    log_failure(request, status, error)
    return json_response(body, status, headers)


def log_failure(request: Request[Any, Any, Any], status: int, error: Exception) -> None:
    """What was not raised on purpose is told with its traceback."""
    if status >= 500 and not isinstance(error, WorkerError):
        log.get("service").exception("request failed", path=request.url.path, exc_info=error)


def json_response(
    value: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response[bytes]:
    """A struct as the answer."""
    return Response(
        msgspec.json.encode(value),
        status_code=status,
        media_type="application/json",
        headers=headers,
    )
