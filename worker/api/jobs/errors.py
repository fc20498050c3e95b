"""Errors as the original worker told them: its own codes, and whether to try again."""

from __future__ import annotations

import msgspec

from worker.api.common.errors import reply_of
from worker.http.replies import ErrorReply

# HTTP status -> the original's error code; others carry their own
_CODES = {
    400: "INVALID_REQUEST",
    408: "INVALID_REQUEST",
    413: "INVALID_REQUEST",
    415: "INVALID_REQUEST",
    429: "QUEUE_FULL",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_RETRIABLE = frozenset({408, 429, 503, 504})


def job_reply_of(error: Exception) -> tuple[int, ErrorReply, dict[str, str]]:
    """(status, body, headers) of an error with the original's code and `retriable`."""
    status, reply, headers = reply_of(error)
    if status in _RETRIABLE:
        headers.pop("x-should-retry", None)
    body = msgspec.structs.replace(
        reply.error, code=_CODES.get(status, reply.error.code), retriable=status in _RETRIABLE
    )
    return status, msgspec.structs.replace(reply, error=body), headers
