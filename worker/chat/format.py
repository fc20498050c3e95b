"""How a model's conversations are written: its template, and how its answers are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from worker.chat.conversation import Conversation
from worker.chat.message import Message, Tool
from worker.chat.reader import ChatReader, PlainReader
from worker.chat.template import ChatTemplate


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is to think.

    is_on   whether at all; None: as the template does by itself
    effort  none, minimal, low, medium, high, ...; as far as the template knows it
    budget  tokens of thought at most
    inline  thoughts stay in the content, with their tags
    """

    is_on: bool | None = None
    effort: str | None = None
    budget: int | None = None
    inline: bool = False


class ChatFormat:
    """The chat format of a model file. Made once, it never changes.

    controls  control tokens that an answer's reader must see, spelled out
    """

    def __init__(self, template: ChatTemplate, controls: Mapping[str, int]) -> None:
        """controls: the vocabulary's control tokens, spelled out -> token id"""
        self.template = template
        self.controls: Mapping[str, int] = {}

    def conversation(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        *,
        thinking: Thinking,
        add_generation_prompt: bool,
        continues: bool,
        variables: Mapping[str, Any],
    ) -> Conversation:
        """The messages as the template wants them; see `Conversation`."""
        return Conversation(
            self.template,
            [_plain(message) for message in messages],
            add_generation_prompt=add_generation_prompt,
            continues=continues,
            variables={**variables, "tools": [_declared(tool) for tool in tools] or None},
        )

    def reader(self, tools: Sequence[Tool], *, prompt: str, thinking: Thinking) -> ChatReader:
        """Of one answer to a prompt.

        tools   that it may call; where there are none, a call is text
        prompt  the prompt's text: where it ends inside a thought, the answer begins inside it
        """
        return PlainReader()


def _plain(message: Message) -> dict[str, Any]:
    """What a template sees; what is not there is not defined in it."""
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name is not None:
        found["name"] = message.name
    if message.thought is not None:
        found["reasoning_content"] = message.thought
    if message.calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": _called(call.name, call.arguments)}
            for call in message.calls
        ]
    if message.call_id is not None:
        found["tool_call_id"] = message.call_id
    return found


def _called(name: str, arguments: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(arguments.encode() or b"{}")
    except msgspec.DecodeError:
        value = arguments
    return {"name": name, "arguments": value}


def _declared(tool: Tool) -> dict[str, Any]:
    """With a description in any case: some templates fail where there is none."""
    function = {"name": tool.name, "description": tool.description or ""}
    return {"type": "function", "function": {**function, "parameters": tool.parameters}}
