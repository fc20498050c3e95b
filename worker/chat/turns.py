"""Turns of a conversation, for templates that insist on their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from worker.chat.message import Message

# What a user says where a template wants one to speak and nobody did.
BEGINS = Message(role="user", content="(The conversation begins.)")
GO_ON = Message(role="user", content="(Go on.)")


ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def with_known_roles(messages: Sequence[Message], is_known: Callable[[str], bool]) -> list[Message]:
    """What others say the user says, or the assistant where it calls, with their role in front."""
    return [
        message
        if message.role in ROLES or is_known(message.role)
        else msgspec.structs.replace(
            message,
            role="assistant" if message.calls else "user",
            content=f"{message.role}: {message.content or ''}",
        )
        for message in messages
    ]


def add_to_system(messages: Sequence[Message], text: str) -> list[Message]:
    """`text` ends the system part."""
    first = messages[0]
    if first.role in ("system", "developer"):
        return [msgspec.structs.replace(first, content=_both(first.content, text)), *messages[1:]]
    return [Message(role="system", content=text), *messages]


def without_system(messages: Sequence[Message], *, first: bool, later: bool) -> list[Message]:
    """The system's words stand in front of the user's next ones, or are the user's.

    first, later  which of the system's messages the template does not show
    """
    found: list[Message] = []
    said: str | None = None
    for place, message in enumerate(messages):
        if message.role == "system" and (first if place == 0 else later):
            said = _both(said, message.content)
            continue
        if said is not None and message.role == "user":
            message = msgspec.structs.replace(message, content=_both(said, message.content))
            said = None
        elif said is not None and message.role != "tool":
            found.append(Message(role="user", content=said))
            said = None
        found.append(message)
    return found if said is None else [*found, Message(role="user", content=said)]


def with_user_first(messages: Sequence[Message]) -> list[Message]:
    """A user speaks before the assistant does."""
    place = next((n for n, each in enumerate(messages) if each.role != "system"), len(messages))
    if place < len(messages) and messages[place].role == "user":
        return list(messages)
    return [*messages[:place], BEGINS, *messages[place:]]


def join_turns(messages: Sequence[Message], role: str) -> list[Message]:
    return _merge(messages, lambda last, message: message.role == last.role == role)


def after_results(messages: Sequence[Message]) -> list[Message]:
    """What a user says right after a result ends the result."""
    return _merge(messages, lambda last, message: (last.role, message.role) == ("tool", "user"))


def _merge(
    messages: Sequence[Message], belong: Callable[[Message, Message], bool]
) -> list[Message]:
    found: list[Message] = []
    for message in messages:
        if found and belong(found[-1], message):
            last = found[-1]
            found[-1] = msgspec.structs.replace(
                last,
                content=_both(last.content, message.content),
                thought=_both(last.thought, message.thought),
                calls=last.calls + message.calls,
            )
        else:
            found.append(message)
    return found


def _both(left: str | None, right: str | None) -> str | None:
    return f"{left}\n\n{right}" if left and right else left or right
