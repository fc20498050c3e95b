"""Errors in Ollama's shape. It imports no routes, so the gate can answer with it."""

from __future__ import annotations

import msgspec

from worker.service.front.replies import ErrorBody


class OllamaErrorReply(msgspec.Struct, frozen=True):
    """{"error": "..."}, as a reply and as a line of a stream."""

    error: str
    request_id: str | msgspec.UnsetType = msgspec.UNSET
    correlation_id: str | msgspec.UnsetType = msgspec.UNSET


def ollama_reply(_status: int, body: ErrorBody) -> OllamaErrorReply:
    """The same error in Ollama's shape."""
    return OllamaErrorReply(body.message, body.request_id, body.correlation_id)
