"""Items of a client's `input` as messages."""

from __future__ import annotations

import base64
import binascii

import msgspec

from worker.api.common.talk.parts import (
    arguments_of,
    called_name,
    check_pictures,
    newest,
    note_of,
    output_of,
    text_of,
    words_of,
)
from worker.api.responses.schemas import InputItem, ResponseRequest
from worker.api.responses.tools import shown_name
from worker.chat.message import Call, Message
from worker.errors import RequestError

PARAM = "input"


def messages_of(body: ResponseRequest) -> tuple[Message, ...]:
    """The instructions as a system message, then the input. Raises RequestError."""
    history = _History()
    if body.instructions:
        history.add(Message(role="system", content=body.instructions))
    if isinstance(body.input, str) and body.input:
        history.add(Message(role="user", content=body.input))
    items = body.input if isinstance(body.input, list) else []
    first = newest([_role(item) for item in items])
    for place, item in enumerate(items):
        if place >= first and item.role == "user":
            check_pictures(item.content, f"{PARAM}[{place}].content", PARAM)
        history.read(item, f"{PARAM}[{place}]")
    return history.messages


def sealed(thought: str) -> str:
    """A thought for a client that keeps what it cannot read: base64."""
    return base64.b64encode(thought.encode()).decode()


def _unsealed(text: str) -> str | None:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return None  # of another server


class _History:
    """Messages so far; what one turn of the assistant said in several items becomes one message."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._turn: Message | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        self._end_turn()
        return tuple(self._messages)

    def add(self, message: Message) -> None:
        self._end_turn()
        self._messages.append(message)

    def read(self, item: InputItem, place: str) -> None:
        match item.type:
            case None | "message":
                self._read_message(item, place)
            case "reasoning":
                self._add_thought(_thought(item))
            case "item_reference":
                raise RequestError(
                    f"{place} refers to an item, and nothing is stored here.",
                    param=PARAM,
                    hint="Send the item itself.",
                )
            case "function_call":
                name = shown_name(called_name(item.name), item.namespace)
                self._add_call(Call(item.call_id or "", name, arguments_of(item.arguments)))
            case kind if kind.endswith("_output"):
                self.add(
                    Message(
                        role="tool",
                        call_id=item.call_id,
                        name=item.name,
                        content=output_of(item.output),
                    )
                )
            case kind if kind.endswith("_call") and item.call_id:
                given = next((x for x in (item.action, item.arguments) if x is not None), None)
                arguments = {"input": item.input} if given is None else given
                name = item.name or kind.removesuffix("_call")
                self._add_call(Call(item.call_id, name, arguments_of(arguments)))
            case kind:
                fields = msgspec.structs.asdict(item)
                self._add_text(words_of(fields) or note_of(kind, fields))

    def _read_message(self, item: InputItem, place: str) -> None:
        if item.role is None:
            raise RequestError(f"{place}.role is missing.", param=PARAM)
        text = text_of(item.content)
        if item.role != "assistant":
            self.add(Message(role=item.role, content=text))
            return
        self._add_text(text)

    def _add_text(self, text: str) -> None:
        if self._turn is not None and self._turn.content is not None:
            self._end_turn()
        turn = self._turn or Message(role="assistant")
        self._turn = msgspec.structs.replace(turn, content=text)

    def _add_call(self, call: Call) -> None:
        turn = self._turn or Message(role="assistant")
        self._turn = msgspec.structs.replace(turn, calls=(*turn.calls, call))

    def _add_thought(self, thought: str) -> None:
        turn = self._turn or Message(role="assistant")
        known = "" if turn.thought is None else turn.thought + "\n\n"
        if thought:
            self._turn = msgspec.structs.replace(turn, thought=known + thought)

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            if turn.content is None and not turn.calls:
                turn = msgspec.structs.replace(turn, content="")
            self._messages.append(turn)


def _role(item: InputItem) -> str | None:
    """assistant for all that is said on its side."""
    if item.type in (None, "message"):
        return item.role
    return "tool" if str(item.type).endswith("_output") else "assistant"


def _thought(item: InputItem) -> str:
    """Its text, or what this worker sealed, or the summary."""
    if item.content:
        return text_of(item.content)
    if item.encrypted_content and (text := _unsealed(item.encrypted_content)) is not None:
        return text
    return text_of(item.summary)
