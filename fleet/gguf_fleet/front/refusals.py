"""The gateway's own errors, in the shape that clients of the API read which was asked."""

from __future__ import annotations

from typing import Any

from gguf_fleet.errors import RefusedError

# Where other APIs than OpenAI's begin.
MESSAGES = "/v1/messages"
OLLAMA = "/api/"
# Status -> the type of an error, OpenAI's and Anthropic's.
_TYPES = {
    400: ("invalid_request_error", "invalid_request_error"),
    401: ("authentication_error", "authentication_error"),
    403: ("permission_error", "permission_error"),
    404: ("not_found_error", "not_found_error"),
    408: ("timeout_error", "timeout_error"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_error"),
    501: ("not_supported_error", "invalid_request_error"),
    503: ("unavailable_error", "overloaded_error"),
}


def refusal_reply(path: str, error: RefusedError, ids: dict[str, str]) -> dict[str, Any]:
    """The body. ids: of the request, which a stream's reader may not see in its headers"""
    openai, anthropic = _TYPES[error.status]
    if path.startswith(MESSAGES):
        error_body = {"type": anthropic, "message": str(error)}
        return {"type": "error", "error": error_body, **ids}
    if path.startswith(OLLAMA):
        return {"error": str(error), **ids}
    body = {"message": str(error), "type": openai, "param": error.param, "code": error.code}
    return {"error": body, **ids}


def headers_of(error: RefusedError) -> dict[str, str]:
    """When to come back, and how to say who one is."""
    found: dict[str, str] = {}
    if error.status in (429, 503):
        found["retry-after"] = "1"
    if error.status == 401:
        found["www-authenticate"] = "Bearer"
    return found
