"""Roles as templates know them: one system message first, and none that is left out unsaid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import msgspec

from worker.chat.message import Message
from worker.errors import RequestError

_ROLES = ("system", "developer")
_KNOWN = frozenset({*_ROLES, "user", "assistant", "tool"})


def with_one_system(messages: Sequence[Message]) -> list[Message]:
    """The system's and the developer's messages at the beginning become one of the system's.

    Most templates leave out a developer's message without a word, and many refuse a second one of
    the system's. Later messages of a developer are the system's too.
    """
    first = list(takewhile(lambda message: message.role in _ROLES, messages))
    others = [
        msgspec.structs.replace(message, role="system") if message.role == "developer" else message
        for message in messages[len(first) :]
    ]
    texts = [message.content for message in first if message.content]
    if not first:
        return others
    return [msgspec.structs.replace(first[0], role="system", content="\n\n".join(texts)), *others]


def spoken(messages: Sequence[Message], *, continues: bool) -> Sequence[Message]:
    """Without messages of the assistant's that hold nothing: an answer that was cut before its
    first word, say. continues: the last one is to go on"""
    last = messages[-1]

    def says(message: Message) -> bool:
        holds = message.content or message.thought or message.calls
        return bool(holds) or message.role != "assistant" or (continues and message is last)

    return [message for message in messages if says(message)] or messages


def check_roles(messages: Sequence[Message], text: str, param: str) -> None:
    """Raise RequestError for a message of another role that did not reach the prompt's text."""
    for message in messages:
        if message.role not in _KNOWN and (message.content or "").strip() not in text:
            raise RequestError(
                f"The model's chat template has no place for the role {message.role[:50]}.",
                param=param,
            )
