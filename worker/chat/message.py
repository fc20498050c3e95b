"""What was said so far, in one form for all APIs: messages, calls, tools."""

from __future__ import annotations

from typing import Any

import msgspec


class Call(msgspec.Struct, frozen=True):
    """A tool call of an assistant.

    arguments  JSON text, as it was written; `{}` for none
    """

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message.

    role     system, developer, user, assistant, tool, or whatever else a template knows
    content  its text; None: it has only calls
    thought  what an assistant thought before it
    calls    what an assistant called
    call_id  of the call that a tool's result answers
    name     of who speaks; of the tool, in a result
    is_error  of a result: the tool failed
    """

    role: str
    content: str | None = None
    thought: str | None = None
    calls: tuple[Call, ...] = ()
    call_id: str | None = None
    name: str | None = None
    is_error: bool = False


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call.

    parameters  JSON schema of its arguments
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] = {}
