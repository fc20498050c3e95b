"""What is raised in or around a route, as Litestar's answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec
from litestar import Response
from litestar.exceptions import HTTPException
from litestar.response import Stream

from worker import log
from worker.api.answer.shapes import error_body
from worker.api.intake.body import HttpRequest
from worker.errors import TooLargeError, WorkerError
from worker.http.replies import ErrorReply, reply, reply_of_ours
from worker.requests.record import note

Reply = tuple[int, ErrorReply, dict[str, str]]
# HTTP status -> our words for what Litestar says
_MESSAGES = {
    404: "There is no such path; see /openapi.json, /v1/models, /v1/completions,"
    " /v1/chat/completions, /v1/responses, /v1/messages and /health.",
    405: "This path does not take this method.",
}


def _ours(error: Exception) -> Exception:
    """Litestar's 413 as an error of ours, anything else as it is."""
    if isinstance(error, HTTPException) and error.status_code == TooLargeError.http_status:
        hint = "--max-body and --max-media-body set how much."
        return TooLargeError("The body is larger than this worker reads.", hint=hint)
    return error


def reply_of(error: Exception) -> Reply:
    """(status, body, headers) for anything that was raised, Litestar's exceptions among them."""
    error = _ours(error)
    if not isinstance(error, HTTPException) or error.status_code == 500:
        return reply_of_ours(error)
    message = _MESSAGES.get(error.status_code, error.detail)
    return reply(error.status_code, message, None, None, dict(error.headers or {}))


def on_error(
    request: HttpRequest, error: Exception, reply_of: Callable[[Exception], Reply] = reply_of
) -> Response[bytes]:
    """Litestar's handler for everything that is raised in or around a route.

    What was not raised on purpose is told with its traceback.
    """
    status, body, headers = reply_of(error)
    path, ours = request.scope["path"], _ours(error)
    if not isinstance(ours, HTTPException):  # a path or a method that is not there has no code
        note(ours)
    if status >= 500 and not isinstance(ours, WorkerError):
        log.get("service").exception("request failed", path=path, exc_info=error)
    return json_response(error_body(path, status, body), status, headers)


def event_stream(events: AsyncIterator[bytes]) -> Stream:
    """Events that need no engine: that they just end when their reader leaves is fine."""
    return Stream(
        events,
        media_type="text/event-stream",  # Litestar adds the charset
        headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
    )


def json_response(
    value: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response[bytes]:
    return Response(
        msgspec.json.encode(value),
        status_code=status,
        media_type="application/json",
        headers=headers,
    )
