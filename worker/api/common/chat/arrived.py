"""Whether the model is shown all that was said."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from worker.chat.message import Message
from worker.chat.reading.answer import ThoughtTags
from worker.errors import RequestError

_WORD = re.compile(r"\w+")
_MAX_WORDS, _MAX_SHOWN = 20, 40


def check_arrived(messages: Sequence[Message], text: str, tags: ThoughtTags, param: str) -> None:
    """Raise RequestError for a message none of whose words stand in the prompt's text.

    tags  around thoughts: templates drop old ones, also those that stand in the content
    """
    for place, message in enumerate(messages, 1):
        said = _without_thoughts(message.content or "", tags)
        called = " ".join(call.name for call in message.calls)
        if _is_shown(f"{said} {called}", text):
            continue
        shown = said.strip()[:_MAX_SHOWN]
        raise RequestError(
            f"The model's chat template has no place for message {place}, of the role "
            f"{message.role[:50]}: nothing of {shown!r} is in the prompt.",
            param=param,
            hint="Say it as the user, or start the worker with another --chat-template.",
        )


def _is_shown(said: str, text: str) -> bool:
    """Whether one of the longest words is there, as it is or as JSON; marks alone are no words."""
    if said.strip() in text:
        return True
    words = sorted(set(_WORD.findall(said)), key=len, reverse=True)[:_MAX_WORDS]
    return not words or any(word in text or json.dumps(word)[1:-1] in text for word in words)


def _without_thoughts(content: str, tags: ThoughtTags) -> str:
    content = content.rpartition(tags.close)[2] if tags.close else content
    return "" if tags.open and tags.open.strip() in content else content
