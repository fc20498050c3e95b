"""Replies of /v1/chat/completions, read strictly in the openai package's own types.

A whole reply and a stream become the same: `Told`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.support import http
from tests.support.programs.processes import Server

CHAT = "/v1/chat/completions"
ARGUMENTS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "at": {"type": "string"},
        "days": {"type": "array", "items": {"type": "integer"}},
        "more": {"type": "object"},
    },
}


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One choice. calls: (name, arguments as they were written)."""

    content: str = ""
    thought: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish_reason: str | None = None

    def arguments(self) -> list[tuple[str, Any]]:
        """The calls, their arguments read."""
        return [(name, json.loads(text)) for name, text in self.calls]


def tool(name: str, parameters: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A tool as a client declares it."""
    schema = parameters or {"type": "object", "properties": {}}
    function = {"name": name, "description": f"Looks at the {name}.", "parameters": schema}
    return {"type": "function", "function": function | more}


#: What the models that recite may call.
TOOLS = [tool("sky", ARGUMENTS_SCHEMA), tool("sea")]


def whole(server: Server, body: dict[str, Any]) -> Told:
    """What a reply that comes at once says."""
    reply = server.post(body, CHAT)
    assert reply.status_code == 200, reply.text
    choice = ChatCompletion.model_validate(reply.json(), strict=True).choices[0]
    message = choice.message
    calls = message.tool_calls or []
    assert message.tool_calls != [], "no calls are no list"
    ids = [call.id for call in calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    return Told(
        content=message.content or "",
        thought=getattr(message, "reasoning_content", None) or "",
        calls=tuple((c.function.name, c.function.arguments) for c in calls if c.type == "function"),
        finish_reason=choice.finish_reason,
    )


def streamed(server: Server, body: dict[str, Any]) -> Told:
    """What a stream says in all."""
    with http.stream("POST", server.url + CHAT, json={**body, "stream": True}) as reply:
        assert reply.status_code == 200, reply.read()
        data = [line.removeprefix("data: ") for line in reply.iter_lines() if line[:6] == "data: "]
    assert data[-1] == "[DONE]"
    return folded(
        ChatCompletionChunk.model_validate(json.loads(each), strict=True) for each in data[:-1]
    )


def folded(chunks: Iterable[ChatCompletionChunk]) -> Told:
    """The fragments put together; what the first one of a call must hold is checked."""
    content, thought, finish = "", "", None
    ids: list[str] = []
    calls: list[list[str]] = []
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        assert finish is None, "nothing follows the end"
        delta, finish = choice.delta, choice.finish_reason
        content += delta.content or ""
        thought += getattr(delta, "reasoning_content", None) or ""
        for part in delta.tool_calls or []:
            assert part.function is not None
            if part.index == len(calls):
                assert part.id
                assert part.type == "function"
                assert part.function.name
                ids.append(part.id)
                calls.append([part.function.name, part.function.arguments or ""])
            else:
                assert part.index == len(calls) - 1, "calls follow each other"
                assert part.id is None
                assert part.function.name is None
                assert part.function.arguments
                calls[-1][1] += part.function.arguments
    assert len(set(ids)) == len(ids)
    return Told(
        content=content,
        thought=thought,
        calls=tuple((name, arguments) for name, arguments in calls),
        finish_reason=finish,
    )
