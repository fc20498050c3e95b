"""Items of a client's `input` as messages."""

from __future__ import annotations

import base64
import binascii

import msgspec

from worker.chat.message import Call, Message
from worker.errors import RequestError
from worker.service.responses.schemas import InputItem, InputPart, ResponseRequest
from worker.service.responses.tools import shown_name

PARAM = "input"
_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})


def messages_of(body: ResponseRequest) -> tuple[Message, ...]:
    """The instructions as a system message, then the input. Raises RequestError."""
    history = _History()
    if body.instructions:
        history.add(Message(role="system", content=body.instructions))
    if isinstance(body.input, str):
        history.add(Message(role="user", content=body.input))
    for place, item in enumerate(body.input if isinstance(body.input, list) else ()):
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
                self._add_thought(_thought(item, place))
            case "function_call":
                turn = self._turn or Message(role="assistant")
                self._turn = msgspec.structs.replace(turn, calls=(*turn.calls, _call(item, place)))
            case "function_call_output":
                if item.output is None or isinstance(item.output, dict):
                    raise RequestError(f"{place}.output must be a text or a list.", param=PARAM)
                text = _text(item.output, f"{place}.output")
                self.add(Message(role="tool", call_id=item.call_id, name=item.name, content=text))
            case "item_reference":
                raise RequestError(
                    f"{place} refers to an item, and nothing is stored here.",
                    param=PARAM,
                    hint="Send the item itself.",
                )
            case _:
                raise RequestError(
                    f"{place} is of type {item.type}, which cannot be read here.", param=PARAM
                )

    def _read_message(self, item: InputItem, place: str) -> None:
        if item.role is None or item.content is None:
            missing = "role" if item.role is None else "content"
            raise RequestError(f"{place}.{missing} is missing.", param=PARAM)
        text = _text(item.content, f"{place}.content")
        if item.role != "assistant":
            self.add(Message(role=item.role, content=text))
            return
        if self._turn is not None and self._turn.content is not None:
            self._end_turn()
        turn = self._turn or Message(role="assistant")
        self._turn = msgspec.structs.replace(turn, content=text)

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


def _call(item: InputItem, place: str) -> Call:
    if not item.name:
        raise RequestError(f"{place}.name is missing.", param=PARAM)
    arguments = item.arguments
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments or {}).decode()
    return Call(item.call_id or "", shown_name(item.name, item.namespace), arguments)


def _thought(item: InputItem, place: str) -> str:
    """Its text, or what this worker sealed, or the summary."""
    if item.content:
        return _text(item.content, f"{place}.content")
    if item.encrypted_content and (text := _unsealed(item.encrypted_content)) is not None:
        return text
    return _text(item.summary or [], f"{place}.summary")


def _text(content: str | list[InputPart], place: str) -> str:
    """Texts in parts become one, a line each."""
    if isinstance(content, str):
        return content
    for at, part in enumerate(content):
        if part.type not in _TEXTS and part.refusal is None:
            raise RequestError(
                f"{place}[{at}] is of type {part.type}; only text can be read.", param=PARAM
            )
    return "\n".join(part.text or part.refusal or "" for part in content)
