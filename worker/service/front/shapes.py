"""The shape in which an API's clients read errors, by the path that they asked for."""

from __future__ import annotations

import msgspec

from worker.service.anthropic.errors import anthropic_reply
from worker.service.front import paths
from worker.service.front.replies import ErrorReply
from worker.service.ollama.errors import ollama_reply


def shaped(path: str, status: int, reply: ErrorReply) -> msgspec.Struct:
    """The body of an error's answer: OpenAI's shape, or that of another API whose path it is."""
    if path.startswith(paths.MESSAGES):
        return anthropic_reply(status, reply)
    if path.startswith(paths.OLLAMA):
        return ollama_reply(status, reply)
    return reply
