"""Messages as a template wants them: calls, results and thoughts in the shape that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from worker.chat.dialects.prompted import described
from worker.chat.message import Call, Message, Tool
from worker.chat.probe import TemplateProbe, called, thought_parts


class History:
    """Messages to what a template gets."""

    def __init__(
        self, probe: TemplateProbe, example: str, past: Callable[[Sequence[Call]], str]
    ) -> None:
        """
        example  how a call is written, for models whose template does not say it
        past     calls as the model writes them, for templates that show none
        """
        self._probe = probe
        self._example = example
        self._past = past

    def messages(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[dict[str, Any]]:
        """The messages; the tools go into the system part where the template does not show them."""
        probe = self._probe
        if any(message.calls or message.role == "tool" for message in messages):
            if probe.shape is None:
                messages = [self._with_written_calls(message) for message in messages]
            elif not probe.keeps_several:
                messages = list(_one_by_one(messages))
            if not probe.knows_results:
                messages = [_as_user(message) for message in messages]
        if tools and not probe.shows_tools:
            messages = _told(messages, described(tools, self._example))
        if not probe.knows_system and messages[0].role == "system":
            messages = _without_system(messages)
        if not (probe.knows_results and probe.knows_system):
            messages = _joined(messages)
        made = [self._plain(message) for message in messages]
        if probe.thinks_in_parts:
            for place, message in enumerate(messages[:-1]):
                if message.thought:
                    made[place] |= thought_parts(message.thought, message.content)
        return made

    def _plain(self, message: Message) -> dict[str, Any]:
        """What is not there is not defined in the template."""
        found: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.name is not None:
            found["name"] = message.name
        if message.thought and (field := self._probe.thought_field):
            found[field] = message.thought
            if message.calls and message.content and self._probe.parts_thought:
                found[field] += f"\n\n{message.content}"
                found["content"] = None
        if message.calls:
            found["tool_calls"] = [self._called(call) for call in message.calls]
            shape = self._probe.shape
            if shape is not None and (not found["content"] or not self._probe.keeps_text):
                found["content"] = shape.content
        elif message.content is None:
            found["content"] = ""
        if message.call_id is not None:
            found["tool_call_id"] = message.call_id
        return found

    def _with_written_calls(self, message: Message) -> Message:
        if not message.calls:
            return message
        parts = (message.content, self._past(message.calls))
        content = "\n".join(part for part in parts if part)
        return msgspec.structs.replace(message, content=content, calls=())

    def _called(self, call: Call) -> dict[str, Any]:
        shape = self._probe.shape
        text = call.arguments.strip() or "{}"
        if shape is not None and shape.is_text:
            return called(call.name, text, call.id)
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            value = text
        return called(call.name, {} if value is None else value, call.id)


def _one_by_one(messages: Sequence[Message]) -> Iterator[Message]:
    """Several calls of one message become messages of one call, each before its result."""
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if len(message.calls) < 2:
            yield message
            continue
        results: list[Message] = []
        while place < len(messages) and messages[place].role == "tool":
            results.append(messages[place])
            place += 1
        for number, call in enumerate(message.calls):
            if number:
                yield Message(role=message.role, calls=(call,))
            else:
                yield msgspec.structs.replace(message, calls=(call,))
            mine = [result for result in results if result.call_id == call.id][:1] or results[:1]
            for result in mine:
                results.remove(result)
                yield result
        yield from results


def _as_user(message: Message) -> Message:
    if message.role != "tool":
        return message
    named = f" of {message.name}" if message.name else ""
    return Message(role="user", content=f"Result{named}:\n{message.content or ''}")


def _told(messages: Sequence[Message], text: str) -> list[Message]:
    first = messages[0]
    if first.role in ("system", "developer"):
        content = f"{first.content}\n\n{text}" if first.content else text
        return [msgspec.structs.replace(first, content=content), *messages[1:]]
    return [Message(role="system", content=text), *messages]


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """The system's words stand before the first question's."""
    first, *others = messages
    if not others or others[0].role != "user":
        return [Message(role="user", content=first.content), *others]
    content = f"{first.content or ''}\n\n{others[0].content or ''}"
    return [msgspec.structs.replace(others[0], content=content), *others[1:]]


def _joined(messages: Sequence[Message]) -> list[Message]:
    """Users who follow each other speak as one: such templates want turns."""
    found: list[Message] = []
    for message in messages:
        if found and message.role == found[-1].role == "user":
            content = f"{found[-1].content or ''}\n\n{message.content or ''}"
            found[-1] = msgspec.structs.replace(found[-1], content=content)
        else:
            found.append(message)
    return found
