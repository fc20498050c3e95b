"""Errors in Ollama's shape. It imports no routes, so the gate can answer with it."""

from __future__ import annotations

import msgspec

from worker.service.front.replies import ErrorBody


class OllamaErrorReply(msgspec.Struct, frozen=True):
    """{"error": "..."}, as a reply and as a line of a stream."""

    error: str


def ollama_reply(_status: int, body: ErrorBody) -> OllamaErrorReply:
    """The same error in Ollama's shape."""
    return OllamaErrorReply(body.message)
