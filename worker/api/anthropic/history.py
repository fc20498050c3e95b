"""System texts and messages of blocks, in their neutral form."""

from __future__ import annotations

import re
from collections.abc import Iterable

from worker.api.anthropic.schemas import MessageParam, MessagesRequest
from worker.api.common.chat.outputs import result_of
from worker.api.common.chat.parts import (
    ContentPart,
    check_pictures,
    joined,
    newest,
    parts_of,
    words_of,
)
from worker.api.common.chat.past_message import arguments_of, called_name, role_of, spelled
from worker.chat.message import Call, Message

PARAM = "messages"
# Claude Code begins its system text with a line that is another one for each request. With it in
# the prompt nothing that follows would be found in the cache.
_BILLING = re.compile(r"\s*x-anthropic-billing-header:[^\n]*\n?")


def messages_of(body: MessagesRequest) -> tuple[Message, ...]:
    """Raises RequestError that names the place.

    A tool's result is a message of its own. Neighbours of one role are one message.
    """
    found: list[Message] = []
    if system := _system(body):
        found.append(Message(role="system", content=system))
    names: dict[str, str] = {}  # of the tools that were called, by the id of the call
    given = [
        (place, each, role_of(each.role)) for place, each in enumerate(body.messages or ()) if each
    ]
    first = newest([role for _, _, role in given])
    for number, (place, message, role) in enumerate(given):
        if number >= first and role == "user":
            check_pictures(message.content, f"{PARAM}[{place}].content", PARAM)
        if role == "assistant":
            parts = _from_assistant(message, names)
        else:
            parts = _from_user(message, role, names)
        for part in parts:
            if found and found[-1].role == part.role != "tool":
                found[-1] = _joined(found[-1], part)
            else:
                found.append(part)
    return tuple(found)


def _system(body: MessagesRequest) -> str:
    given = body.system
    texts = [given] if isinstance(given, str) else [words_of(part) for part in parts_of(given)]
    texts = [text for text in texts if text]
    texts = [_BILLING.sub("", text, count=1) if _BILLING.match(text) else text for text in texts]
    return "\n".join(text for text in texts if text)


def _from_user(message: MessageParam, role: str, names: dict[str, str]) -> Iterable[Message]:
    """Texts and results, in their order."""
    texts: list[ContentPart] = []
    found: list[Message] = []
    for block in parts_of(message.content):
        if block.get("type") != "tool_result":
            texts.append(block)
            continue
        if texts:
            found.append(Message(role=role, content=joined(texts)))
            texts = []
        found.append(_result(block, names))
    if texts or not found:
        found.append(Message(role=role, content=joined(texts)))
    return found


def _from_assistant(message: MessageParam, names: dict[str, str]) -> Iterable[Message]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Call] = []
    for block in parts_of(message.content):
        said = words_of(block)
        if block.get("type") == "tool_use":
            call = _call(block)
            names[call.id] = call.name
            calls.append(call)
        elif said is not None:
            (thoughts if block.get("type") == "thinking" else texts).append(said)
    yield Message(
        role="assistant",
        content="\n".join(texts) if texts or not calls else None,
        thought="\n".join(thoughts) or None,
        calls=tuple(calls),
    )


def _call(block: ContentPart) -> Call:
    fields = ("input", "arguments", "args", "parameters")
    given = next((block[name] for name in fields if block.get(name) is not None), None)
    name = called_name(block.get("name"))
    return Call(spelled(block.get("id")) or "", name, arguments_of(given))


def _result(block: ContentPart, names: dict[str, str]) -> Message:
    """One without an id is that of the first call that has none."""
    known = spelled(block.get("tool_use_id"))
    return result_of(block, call_id=known, name=names.get(known or ""))


def _joined(first: Message, second: Message) -> Message:
    def both(left: str | None, right: str | None) -> str | None:
        return f"{left}\n{right}" if left and right else left or right

    return Message(
        role=first.role,
        content=both(first.content, second.content),
        thought=both(first.thought, second.thought),
        calls=first.calls + second.calls,
    )
