"""Answers that speak of the tags around thoughts, which templates would take for the tags."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from worker.chat.message import Message
from worker.chat.reading.answer import ThoughtTags


def without_mentions(messages: Sequence[Message], tags: ThoughtTags) -> list[Message]:
    """The messages with a space in each tag that an answer only speaks of.

    Templates leave out what stands before the tag that ends a thought. It ends one where a thought
    was begun before it, or where it stands in a line of its own.
    """
    if not tags.close:
        return [*messages]
    alone = re.compile(rf"^\s*{re.escape(tags.close.strip())}\s*$", re.MULTILINE)
    return [_mended(message, tags, alone) for message in messages]


def _mended(message: Message, tags: ThoughtTags, alone: re.Pattern[str]) -> Message:
    content, close = message.content or "", tags.close.strip()
    if message.role != "assistant" or close not in content:
        return message
    if tags.open.strip() in content.partition(close)[0] or alone.search(content):
        return message
    return msgspec.structs.replace(
        message, content=content.replace(close, f"{close[:-1]} {close[-1]}")
    )
