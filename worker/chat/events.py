"""What a model's text says, piece by piece: content, thoughts, tool calls.

    <think>Rain?</think>I look.<tool_call>{"name": "sky", "arguments": {"at": "Rome"}}</tool_call>

    Thought("Rain?")  Content("I look.")  CallBegun(0, ID, "sky")  Arguments(0, '{"at": "Rome"}')
    CallEnded(0)

Calls follow each other: a call has ended before the next one begins. Thoughts and content may
stand before, between and after calls. Texts are never empty.
"""

from __future__ import annotations

import msgspec


class Content(msgspec.Struct, frozen=True, gc=False):
    """More of the answer's text."""

    text: str


class Thought(msgspec.Struct, frozen=True, gc=False):
    text: str


class CallBegun(msgspec.Struct, frozen=True, gc=False):
    """A call whose name is known. index counts the calls of an answer from 0."""

    index: int
    id: str
    name: str


class Arguments(msgspec.Struct, frozen=True, gc=False):
    """More of the JSON text of a call's arguments."""

    index: int
    text: str


class CallEnded(msgspec.Struct, frozen=True, gc=False):
    """A call is whole: the texts of its `Arguments` together are a JSON object."""

    index: int


ChatEvent = Content | Thought | CallBegun | Arguments | CallEnded
