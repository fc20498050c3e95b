"""Ollama's messages in their neutral form."""

from __future__ import annotations

from collections.abc import Iterable

from worker.api.common.talk.parts import (
    arguments_of,
    called_name,
    check_pictures,
    newest,
    output_of,
    text_of,
)
from worker.api.ollama.schemas import ROLES, OllamaMessage
from worker.chat.message import Call, Message
from worker.errors import RequestError

PARAM = "messages"


def messages_of(given: Iterable[OllamaMessage]) -> tuple[Message, ...]:
    """Raises RequestError that names the place.

    Calls without an id get one, and results are given to the calls before them: by id, by the
    tool's name, or in their order.
    """
    found: list[Message] = []
    open_calls: list[Call] = []
    count = 0
    given = list(given)
    first = newest([message.role for message in given])
    for place, message in enumerate(given):
        where = f"{PARAM}[{place}]"
        if message.role not in ROLES:
            raise RequestError(f"{where}.role must be one of {', '.join(ROLES)}.", param=PARAM)
        if place >= first and message.role == "user":
            if message.images:
                raise RequestError(
                    f"{where} has images; this model reads text only.",
                    param=PARAM,
                    hint="Ask without them, or describe them.",
                )
            check_pictures(message.content, f"{where}.content", PARAM)
        read = output_of if message.role == "tool" else text_of
        content = "\n".join(
            text
            for text in (read(message.content), *("[image]" for _ in message.images or ()))
            if text
        )
        if message.role == "tool":
            found.append(_result(message, content, open_calls))
            continue
        calls: list[Call] = []
        for call in filter(None, message.tool_calls or ()):
            arguments = arguments_of(call.called.arguments)
            # Nine letters and digits: some templates take no other id.
            calls.append(
                Call(call.id or f"call{count:05}", called_name(call.called.name), arguments)
            )
            count += 1
        open_calls = list(calls)
        found.append(
            Message(
                role=message.role,
                content=content or (None if calls else ""),
                thought=message.thinking or None,
                calls=tuple(calls),
            )
        )
    return tuple(found)


def _result(message: OllamaMessage, content: str, open_calls: list[Call]) -> Message:
    """Takes the call that it answers out of the open ones."""

    def is_meant(call: Call) -> bool:
        if message.tool_call_id:
            return call.id == message.tool_call_id
        return not message.tool_name or call.name == message.tool_name

    call = next(filter(is_meant, open_calls), None)
    if call is not None:
        open_calls.remove(call)
    return Message(
        role="tool",
        content=content,
        call_id=message.tool_call_id or (call.id if call else None),
        name=message.tool_name or (call.name if call else None),
    )
