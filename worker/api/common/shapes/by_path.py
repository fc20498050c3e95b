"""The shape in which an API's clients read errors, by the path that they asked for."""

from __future__ import annotations

import msgspec

from worker.api.common.shapes.anthropic import anthropic_reply
from worker.api.common.shapes.ollama import ollama_reply
from worker.errors import ContextLengthError
from worker.http import paths
from worker.http.replies import ErrorReply

_TOO_LONG = "exceed_context_size_error"  # what llama-server's own clients look for


def shaped(path: str, status: int, reply: ErrorReply) -> msgspec.Struct:
    """The body of an error's answer: OpenAI's shape, or that of another API whose path it is."""
    if path.startswith(paths.MESSAGES):
        return anthropic_reply(status, reply)
    if path.startswith(paths.OLLAMA):
        return ollama_reply(status, reply)
    if path in paths.LLAMA and reply.error.code == ContextLengthError.default_code:
        error = msgspec.structs.replace(reply.error, type=_TOO_LONG)
        return msgspec.structs.replace(reply, error=error)
    return reply
