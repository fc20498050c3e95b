"""One system message first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import msgspec

from worker.chat.message import Message

_ROLES = ("system", "developer")


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
