"""System texts and messages of blocks, in their neutral form."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from worker.chat.message import Call, Message
from worker.errors import RequestError
from worker.service.anthropic.schemas import (
    ROLES,
    ContentBlock,
    DocumentSource,
    MessageParam,
    MessagesRequest,
)

PARAM = "messages"
# Claude Code begins its system text with a line that is another one for each request. With it in
# the prompt nothing that follows would be found in the cache.
_BILLING = re.compile(r"\s*x-anthropic-billing-header:[^\n]*\n?")
_HIDDEN = "redacted_thinking"  # only Anthropic can read it


def messages_of(body: MessagesRequest) -> tuple[Message, ...]:
    """Raises RequestError that names the place.

    A tool's result is a message of its own. Neighbours of one role are one message.
    """
    found: list[Message] = []
    if system := _system(body):
        found.append(Message(role="system", content=system))
    names: dict[str, str] = {}  # of the tools that were called, by the id of the call
    for place, message in enumerate(body.messages or ()):
        where = f"{PARAM}[{place}]"
        if message.role not in ROLES:
            raise RequestError(f"{where}.role must be one of {', '.join(ROLES)}.", param=PARAM)
        parts = _from_assistant if message.role == "assistant" else _from_user
        for part in parts(message, where, names):
            if found and found[-1].role == part.role != "tool":
                found[-1] = _joined(found[-1], part)
            else:
                found.append(part)
    return tuple(found)


def _system(body: MessagesRequest) -> str:
    given = body.system or ""
    texts = [given] if isinstance(given, str) else [_text(block, "system") for block in given]
    texts = [_BILLING.sub("", text, count=1) if _BILLING.match(text) else text for text in texts]
    return "\n".join(text for text in texts if text)


def _from_user(message: MessageParam, where: str, names: dict[str, str]) -> Iterable[Message]:
    """Texts and results, in their order."""
    texts: list[str] = []
    for place, block in enumerate(_blocks(message, where)):
        if block.type != "tool_result":
            texts.append(_text(block, f"{where}.content[{place}]"))
            continue
        if texts:
            yield Message(role=message.role, content="\n".join(texts))
            texts = []
        yield _result(block, f"{where}.content[{place}]", names)
    if texts:
        yield Message(role=message.role, content="\n".join(texts))


def _from_assistant(message: MessageParam, where: str, names: dict[str, str]) -> Iterable[Message]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Call] = []
    for place, block in enumerate(_blocks(message, where)):
        if block.type == "thinking":
            thoughts.append(block.thinking or "")
        elif block.type == "tool_use":
            call = _call(block, f"{where}.content[{place}]")
            names[call.id] = call.name
            calls.append(call)
        elif block.type != _HIDDEN:
            texts.append(_text(block, f"{where}.content[{place}]"))
    yield Message(
        role="assistant",
        content="\n".join(texts) if texts or not calls else None,
        thought="\n".join(thoughts) or None,
        calls=tuple(calls),
    )


def _blocks(message: MessageParam, where: str) -> list[ContentBlock]:
    if isinstance(message.content, str):
        return [ContentBlock("text", message.content)]
    if not message.content:
        raise RequestError(f"{where}.content is empty.", param=PARAM)
    return message.content


def _text(block: ContentBlock, where: str) -> str:
    source = block.source
    if block.type == "document" and isinstance(source, DocumentSource) and source.type == "text":
        if source.data is None:
            raise RequestError(f"{where}.source.data is missing.", param=PARAM)
        return f"{block.title}\n{source.data}" if block.title else source.data
    if block.type != "text":
        raise RequestError(
            f"{where} is of type {block.type[:40]!r}; only text can be read.", param=PARAM
        )
    if block.text is None:
        raise RequestError(f"{where}.text is missing.", param=PARAM)
    return block.text


def _call(block: ContentBlock, where: str) -> Call:
    if not block.id or not block.name:
        raise RequestError(f"{where} needs an id and a name.", param=PARAM)
    return Call(block.id, block.name, msgspec.json.encode(block.input or {}).decode())


def _result(block: ContentBlock, where: str, names: dict[str, str]) -> Message:
    if not block.tool_use_id:
        raise RequestError(f"{where}.tool_use_id is missing.", param=PARAM)
    content = block.content or ""
    if not isinstance(content, str):
        content = "\n".join(
            _text(part, f"{where}.content[{place}]") for place, part in enumerate(content)
        )
    return Message(
        role="tool",
        content=content,
        call_id=block.tool_use_id,
        name=names.get(block.tool_use_id),
        is_error=bool(block.is_error),
    )


def _joined(first: Message, second: Message) -> Message:
    """Two messages of one role as one."""

    def both(left: str | None, right: str | None) -> str | None:
        return f"{left}\n{right}" if left and right else left or right

    return Message(
        role=first.role,
        content=both(first.content, second.content),
        thought=both(first.thought, second.thought),
        calls=first.calls + second.calls,
    )
