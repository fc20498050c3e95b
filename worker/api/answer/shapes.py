"""Errors in the shape that clients of each API read. It imports no routes: the gate
answers with it."""

from __future__ import annotations

import msgspec

from worker import log
from worker.errors import ContextLengthError
from worker.http import paths
from worker.http.replies import ErrorReply

# HTTP status -> Anthropic's error type
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    499: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


# Official packages look for this code, and then send the whole conversation.
UNTHREADED = "thread_unsupported_request"


class AnthropicDetails(msgspec.Struct, frozen=True):
    """What programs look at."""

    error_code: str


class AnthropicError(msgspec.Struct, frozen=True):
    """What went wrong; the message names the field.

    n_prompt_tokens, n_ctx  where a prompt is too long: its tokens, and those that the context holds
    """

    type: str
    message: str
    details: AnthropicDetails | msgspec.UnsetType = msgspec.UNSET
    n_prompt_tokens: int | msgspec.UnsetType = msgspec.UNSET
    n_ctx: int | msgspec.UnsetType = msgspec.UNSET


class AnthropicErrorReply(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """{"type": "error", "error": {...}}, as a reply and as an event of a stream."""

    error: AnthropicError
    request_id: str | None
    correlation_id: str | msgspec.UnsetType = msgspec.UNSET


def anthropic_reply(status: int, reply: ErrorReply) -> AnthropicErrorReply:
    """The same error in Anthropic's shape; the id of the request at hand is always in it."""
    body = reply.error
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    details = AnthropicDetails(UNTHREADED) if body.code == UNTHREADED else msgspec.UNSET
    told = AnthropicError(kind, body.message, details, body.n_prompt_tokens, body.n_ctx)
    return AnthropicErrorReply(told, log.request_ids()[0], reply.correlation_id)


class OllamaErrorReply(msgspec.Struct, frozen=True):
    """{"error": "..."}, as a reply and as a line of a stream.

    n_prompt_tokens, n_ctx  where a prompt is too long: its tokens, and those that the context holds
    """

    error: str
    request_id: str | msgspec.UnsetType = msgspec.UNSET
    correlation_id: str | msgspec.UnsetType = msgspec.UNSET
    n_prompt_tokens: int | msgspec.UnsetType = msgspec.UNSET
    n_ctx: int | msgspec.UnsetType = msgspec.UNSET


def ollama_reply(_status: int, reply: ErrorReply) -> OllamaErrorReply:
    """The same error in Ollama's shape."""
    body = reply.error
    return OllamaErrorReply(
        body.message, reply.request_id, reply.correlation_id, body.n_prompt_tokens, body.n_ctx
    )


class TeiErrorReply(msgspec.Struct, frozen=True):
    """{"error": "...", "error_type": "..."}, text-embeddings-inference's.

    n_prompt_tokens, n_ctx  as above
    """

    error: str
    error_type: str
    request_id: str | msgspec.UnsetType = msgspec.UNSET
    correlation_id: str | msgspec.UnsetType = msgspec.UNSET
    n_prompt_tokens: int | msgspec.UnsetType = msgspec.UNSET
    n_ctx: int | msgspec.UnsetType = msgspec.UNSET


# HTTP status -> its word
_TEI_TYPES = {429: "overloaded", 503: "unhealthy"}


def tei_reply(status: int, reply: ErrorReply) -> TeiErrorReply:
    """The same error in the shape of text-embeddings-inference."""
    body = reply.error
    kind = _TEI_TYPES.get(status, "validation" if status < 500 else "backend")
    return TeiErrorReply(
        body.message, kind, reply.request_id, reply.correlation_id, body.n_prompt_tokens, body.n_ctx
    )


_TOO_LONG = "exceed_context_size_error"  # what llama-server's own clients look for


def error_body(path: str, status: int, reply: ErrorReply) -> msgspec.Struct:
    """The body of an error's answer: OpenAI's shape, or that of another API whose path it is."""
    if path.startswith(paths.MESSAGES):
        return anthropic_reply(status, reply)
    if path.startswith(paths.OLLAMA):
        return ollama_reply(status, reply)
    if path in paths.TEI:
        return tei_reply(status, reply)
    if path in paths.VECTORS:
        message = reply.error.message
        return msgspec.structs.replace(reply, detail=message, message=message)
    if path in paths.LLAMA and reply.error.code == ContextLengthError.default_code:
        error = msgspec.structs.replace(reply.error, type=_TOO_LONG)
        return msgspec.structs.replace(reply, error=error)
    return reply
