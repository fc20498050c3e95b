"""What was said so far, in one form for all APIs: messages, calls, tools."""

from __future__ import annotations

import json
from typing import Any

import msgspec


class Call(msgspec.Struct, frozen=True):
    """A tool call of an assistant.

    arguments  JSON text, as it was written; `{}` for none
    """

    id: str
    name: str
    arguments: str

    @property
    def named(self) -> dict[str, Any] | None:
        """The arguments by their names, null is none; None: they are no object that says each name
        once."""
        text = self.arguments.strip() or "{}"
        try:
            found = msgspec.json.decode(text, type=dict[str, Any] | None)
            json.loads(text, object_pairs_hook=_check_once)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return None
        return {} if found is None else found


def _check_once(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name stands there twice")


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
