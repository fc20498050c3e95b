"""A message of a history and what a tool returned, as clients of all APIs write them."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, cast

import msgspec

from worker.api.intake.chat.content_parts import (
    KINDS,
    MEDIA_FIELDS,
    PART_FIELDS,
    MessageContent,
    holds_bytes,
    medium_of,
    medium_words,
    parts_of,
    text_of,
    text_of_parts,
)
from worker.api.intake.chat.placeholders import (
    as_text,
    has_failed,
    note_of,
    source_notes,
    telling_fields,
    without_media,
)
from worker.api.intake.media_inputs import MediaInputs
from worker.chat.message import Call, Message

# Fields that hold what was returned, the first that is there.
_RETURNED = ("output", "content", "outputs", "results", "result", "text")
# What else is known of a result: whose it is, how it went, and marks for the server.
_OF_RESULTS = frozenset(
    "name tool_name tool_call_id role namespace server_label execution created_by status "
    "is_error isError error approval_request_id".split()
)


def result_of(
    fields: Mapping[str, Any], *, call_id: str | None, name: str | None, media: MediaInputs
) -> Message:
    """A tool's result from the fields that an API gives it. An error's words end it."""
    used = next((each for each in _RETURNED if fields.get(each) is not None), None)
    returned = output_of(fields.get(used), media) if used is not None else ""
    rest = telling_fields(fields, media, (*_OF_RESULTS, *((used,) if used is not None else ())))
    error = fields.get("error")
    told = [returned]
    if not used:
        told += [as_text(next(iter(rest.values())) if len(rest) == 1 else rest)] if rest else []
    elif any(isinstance(value, str | list | dict) for value in rest.values()):
        told.append(note_of("more", rest, media))
    if error not in (None, "", True, False) and (text := as_text(error)) != returned:
        told.append(text)
    content = media.lines(filter(None, told))
    return Message(
        role="tool", content=content, call_id=call_id, name=name, is_error=has_failed(fields)
    )


def output_of(given: Any, media: MediaInputs) -> str:
    """What a tool returned: a text, parts, or any other value as JSON."""
    if given is None or isinstance(given, str):
        return given or ""
    parts = cast("list[Any]", given if isinstance(given, list) else [given])
    if all(part is None or isinstance(part, str) or _is_part(part, media) for part in parts):
        return text_of(parts, media)
    return as_text(without_media(given, media))


def _is_part(value: Any, media: MediaInputs) -> bool:
    """Whether it is a part of a kind that some API has; else it is a tool's own object."""
    if not isinstance(value, dict):
        return False
    part = cast("Mapping[str, Any]", value)
    kind, is_medium = part.get("type"), medium_of(part) is not None
    if is_medium and holds_bytes(part):
        return True
    if not isinstance(kind, str) or not (kind in KINDS or is_medium):
        return False
    # What a part of that kind never has is a tool's own, and would not be told.
    rest = telling_fields(part, media, MEDIA_FIELDS if is_medium else PART_FIELDS)
    return not any(not name.startswith("_") for name in rest)


# A name or an id beside what has a form; what is no text becomes one.
Spelled = str | int | float | bool | None


class CalledFunction(msgspec.Struct):
    """What was called; `arguments` is JSON text, and clients of other servers send the value.

    input, args, parameters
           in place of arguments
    """

    name: MessageContent = None
    arguments: Any = None
    input: Any = None
    args: Any = None
    parameters: Any = None


class PastCall(CalledFunction):
    """A tool call in the history: what was called stands in it, or one level deeper."""

    id: MessageContent = None
    function: CalledFunction | list[Any] | Spelled = None
    custom: CalledFunction | list[Any] | Spelled = None

    @property
    def call(self) -> Call:
        """In its neutral form."""
        inner = (self.function, self.custom)
        found = next((each for each in inner if isinstance(each, CalledFunction)), self)
        named = (found.name, self.name, *(each for each in inner if isinstance(each, str)))
        forms = (found.arguments, found.input, found.args, found.parameters)
        forms += (self.arguments, self.input, self.args, self.parameters)
        given = next((form for form in forms if form is not None), None)
        name = next(filter(None, map(name_of, named)), None)
        return Call(name_of(self.id) or "", call_name(name), arguments_of(given))


# Of one message; null, nothing, [], {} and "" are none.
PastCalls = list[PastCall | list[Any] | Spelled] | PastCall | Spelled


def calls_of(given: PastCalls, media: MediaInputs) -> tuple[tuple[Call, ...], list[str]]:
    """The calls, and notes on what cannot be read as one."""
    each = given if isinstance(given, list) else [given] if given else []
    calls = tuple(call.call for call in each if isinstance(call, PastCall) and call != PastCall())
    odd = (call for call in each if call and not isinstance(call, PastCall))
    return calls, [note_of("tool call", {"value": call}, media) for call in odd]


def name_of(given: Any) -> str | None:
    """A name or an id as text; None: there is none."""
    return None if given in (None, "", [], {}) else as_text(given)


def call_name(given: Any) -> str:
    """What was called; a call without a name in a history is one all the same."""
    return name_of(given) or "unknown"


def arguments_of(given: Any) -> str:
    """A past call's arguments as JSON text, as they were written where they are text."""
    if isinstance(given, str):
        return given
    return as_text({} if given is None else given)


# Others' names of roles -> ours.
_ROLES = {"ai": "assistant", "model": "assistant", "bot": "assistant", "human": "user"}
_KNOWN = ("system", "developer", "user", "assistant", "tool", "function")
_THOUGHTS = ("thinking", "reasoning")
_RESULTS = ("tool", "function")
_THOUGHT_WORDS = {"text", "thinking", "summary"}  # else only their author can read them


class PastMessage(msgspec.Struct, kw_only=True):
    """What one message of the conversation says, beside its role.

    content, text, parts
             a text, or parts; what is no text becomes a note in brackets
    images   pictures; a note in brackets each where the model sees none
    refusal  what an assistant said instead of content, or beside it
    audio    what an assistant said aloud: its transcript is read
    citations, annotations
             what it referred to: a note in brackets with the address
    reasoning_content, reasoning, reasoning_text, thinking, thinking_blocks, reasoning_details
             what an assistant thought
    tool_calls
             what an assistant called
    function_call
             the one call of an assistant, in the form that calls had before
    tool_call_id, call_id, tool_name
             of a tool's result: whose it is
    is_error, status, error
             of a tool's result: whether the tool failed, and how
    output, result
             of a tool's result: other names of its content
    """

    content: MessageContent = None
    text: MessageContent = None
    parts: MessageContent = None
    name: MessageContent = None
    reasoning_content: MessageContent = None
    reasoning: MessageContent = None
    reasoning_text: MessageContent = None
    thinking: MessageContent = None
    thinking_blocks: MessageContent = None
    reasoning_details: MessageContent = None
    tool_calls: PastCalls = None
    function_call: PastCall | list[Any] | Spelled = None
    tool_call_id: MessageContent = None
    call_id: MessageContent = None
    tool_name: MessageContent = None
    refusal: MessageContent = None
    audio: MessageContent = None
    images: MessageContent = None
    citations: MessageContent = None
    annotations: MessageContent = None
    is_error: Any = None
    status: Any = None
    error: Any = None
    output: Any = None
    result: Any = None


# What stands beside the content; beside a text alone, nothing.
_beside = attrgetter(*(name for name in PastMessage.__struct_fields__ if name != "content"))
_NOTHING = _beside(PastMessage())


def role_of(given: str | None, message: PastMessage | None = None) -> str:
    """Ours for another name of a role; who says none is told by what the message holds. One that
    nobody knows stays: the chat format puts its words where the model can read them."""
    role = (given or "").strip()
    word = role.lower()
    if role:
        return word if word in _KNOWN else _ROLES.get(word, role)
    if message is not None and (message.tool_call_id or message.call_id):
        return "tool"
    has_called = message is not None and (message.tool_calls or message.function_call)
    return "assistant" if has_called else "user"


def message_of(given: PastMessage, role: str, media: MediaInputs) -> Message:
    """In its neutral form. Texts in parts become one, a line each; the thoughts among an
    assistant's are its thought."""
    if role in _RESULTS:
        return _result(given, media)
    if isinstance(given.content, str) and _beside(given) == _NOTHING:
        return Message(role=role, content=given.content)
    kinds = _THOUGHTS if role == "assistant" else ()
    parts = [part for each in _contents(given) for part in parts_of(each)]
    spoken = (part for part in parts if part.get("type") not in kinds)
    said = [text_of_parts(spoken, media), text_of(given.refusal, media)]
    said += [text_of_parts(({"type": "audio", **part} for part in parts_of(given.audio)), media)]
    said = _with_pictures(said, given.images, media)
    said += [*source_notes(given.citations), *source_notes(given.annotations)]
    calls, notes = calls_of(given.tool_calls, media)
    older, more = calls_of(given.function_call, media)
    content = media.lines(filter(None, (*said, *notes, *more)))
    thoughts = [given.reasoning_content, given.reasoning, given.reasoning_text, given.thinking]
    thoughts += [
        [part for part in parts_of(details) if part.keys() & _THOUGHT_WORDS]
        for details in (given.thinking_blocks, given.reasoning_details)
    ]
    thoughts += [[part for part in parts if part.get("type") in kinds]]
    texts = dict.fromkeys(text_of(thought, media) for thought in thoughts)
    return Message(
        role=role,
        content=content or (None if calls or older else ""),
        thought="\n\n".join(filter(None, texts)) or None,
        calls=calls + older,
        name=name_of(given.name),
    )


def _result(given: PastMessage, media: MediaInputs) -> Message:
    fields = {
        "content": next((each for each in _results(given) if each is not None), None),
        "is_error": given.is_error,
        "status": given.status,
        "error": given.error,
    }
    whose = name_of(given.tool_call_id) or name_of(given.call_id)
    name = name_of(given.name) or name_of(given.tool_name)
    found = result_of(fields, call_id=whose, name=name, media=media)
    said = _with_pictures([found.content or ""], given.images, media)
    return msgspec.structs.replace(found, content=media.lines(filter(None, said)))


def _results(given: PastMessage) -> tuple[Any, ...]:
    return *_contents(given), given.output, given.result


def _contents(given: PastMessage) -> tuple[MessageContent, ...]:
    return given.content, given.text, given.parts


def pictures_of(images: MessageContent) -> list[Any]:
    """The pictures of Ollama's field as parts; in a list an empty one is a picture, too."""
    given = [each or {"type": "image"} for each in images] if isinstance(images, list) else images
    return [
        {**part, "type": "image", "text": None, "url": part.get("text")} for part in parts_of(given)
    ]


def _with_pictures(said: list[str], images: MessageContent, media: MediaInputs) -> list[str]:
    """Pictures that the model sees stand before the words, notes on others behind them."""
    shown = [medium_words(each, media) for each in pictures_of(images)]
    return [*shown, *said] if media.takes("image") else [*said, *shown]
