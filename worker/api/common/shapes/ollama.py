"""Errors in Ollama's shape. It imports no routes, so the gate can answer with it."""

from __future__ import annotations

import msgspec

from worker.http.replies import ErrorReply


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
