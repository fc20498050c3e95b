"""Reads texts by a real template's dialect, cut everywhere."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from tests.support.models import templates
from worker.chat.format import ChatFormat
from worker.chat.message import Tool
from worker.chat.reader import Arguments, CallBegun, CallEnded, ChatEvent, Content, Thought
from worker.chat.template import ChatTemplate
from worker.chat.thinking import Thinking

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "at": {"type": "string"},
        "days": {"type": "integer"},
        "more": {"type": "object"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
}
TOOLS = (Tool(name="sky", parameters=SCHEMA), Tool(name="sea", parameters=SCHEMA))


@functools.cache
def format_of(name: str) -> ChatFormat:
    """The format of a template that llama.cpp ships."""
    return ChatFormat(ChatTemplate(templates.text(name), bos="<s>", eos="</s>"), {})


def read(
    made: ChatFormat,
    pieces: Iterable[str],
    *,
    tools: Sequence[Tool] = TOOLS,
    prompt: str = "",
    thinking: Thinking | None = None,
    parallel: bool = True,
) -> list[ChatEvent]:
    """The events of an answer that comes in pieces; neighbours joined, ids left out."""
    reader = made.reader(tools, prompt=prompt, thinking=thinking or Thinking(), parallel=parallel)
    events = [event for piece in pieces for event in reader.feed(piece)]
    return joined(events + reader.finish())


def joined(events: Iterable[ChatEvent]) -> list[ChatEvent]:
    """Texts of one kind that follow each other become one."""
    found: list[ChatEvent] = []
    for event in events:
        last = found[-1] if found else None
        match event, last:
            case Content(text), Content(before):
                found[-1] = Content(before + text)
            case Thought(text), Thought(before):
                found[-1] = Thought(before + text)
            case Arguments(index, text), Arguments(_, before):
                found[-1] = Arguments(index, before + text)
            case CallBegun(index, _, name), _:
                found.append(CallBegun(index, "", name))
            case _:
                found.append(event)
    return found


def told(made: ChatFormat, text: str, **options: Any) -> list[ChatEvent]:
    """The events of a text. They are the same when it is cut at any place, and at each place."""
    whole = read(made, [text], **options)
    assert read(made, text, **options) == whole
    for place in range(1, len(text)):
        assert read(made, [text[:place], text[place:]], **options) == whole, text[:place]
    return whole


def calls(*pairs: tuple[str, str], first: int = 0) -> list[ChatEvent]:
    """The events of whole calls: names and arguments."""
    return [
        event
        for index, (name, arguments) in enumerate(pairs, first)
        for event in (CallBegun(index, "", name), Arguments(index, arguments), CallEnded(index))
    ]
