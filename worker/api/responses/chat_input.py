"""A client's body of the Responses API to a ChatInput: items as messages, functions alone or in
namespaces."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from worker.api.intake.bounds import check_alternatives, stops_of, tokens_of, truncates
from worker.api.intake.chat.chat_input import ChatInput
from worker.api.intake.chat.content_parts import (
    MessageContent,
    check_pictures,
    newest,
    text_of,
    words_of,
)
from worker.api.intake.chat.past_message import (
    PastMessage,
    arguments_of,
    call_name,
    message_of,
    name_of,
    result_of,
    role_of,
)
from worker.api.intake.chat.placeholders import note_of, telling_fields
from worker.api.intake.chat.tools import Tools, choice_of
from worker.api.intake.facts import ModelFacts
from worker.api.intake.media_inputs import MediaInputs
from worker.api.intake.sampling import sampling_of
from worker.api.intake.thinking import thinking_of
from worker.api.responses.schemas import ResponseRequest, ResponseTool, ResponseTools
from worker.budget import Budget
from worker.chat.message import Call, Message
from worker.engine.request import GenerationParams
from worker.errors import RequestError

_JOINT = "__"


class FunctionPlace(msgspec.Struct, frozen=True):
    """Where a client finds a function: its name, in a namespace or in none."""

    name: str
    namespace: str | None = None


def shown_name(name: str, namespace: str | None) -> str:
    """What the model calls it: `crm__find`, also for the namespace `crm__`."""
    return name if namespace is None else namespace.removesuffix(_JOINT) + _JOINT + name


class DeclaredFunctions:
    """The functions that a client declares. Other tools are skipped.

    found     as the model sees them
    places    the model's name of a function -> where the client finds it
    declared  what was not skipped, as it was declared
    """

    def __init__(self, declared: ResponseTools | None) -> None:
        """Raises RequestError for too many."""
        self.places: dict[str, FunctionPlace] = {}
        self.declared: list[ResponseTool] = []
        found = self.found = Tools(declared)
        for number, tool in enumerate(declared or ()):
            if tool is None:
                continue
            place = f"tools[{number}]"
            if not isinstance(tool, ResponseTool):
                found.leave_out(f"{place} is no object")
            elif tool.type == "namespace":
                self._add_space(tool, place, found)
            elif tool.type in ("function", None):
                if self._add(tool, place, found):
                    self.declared.append(tool)
            else:
                found.add_kind(name_of(tool.type) or "")

    def _add_space(self, space: ResponseTool, place: str, found: Tools) -> None:
        inside = space.tools if isinstance(space.tools, list) else ()
        functions: ResponseTools = [
            tool
            for number, tool in enumerate(inside)
            if isinstance(tool, ResponseTool)
            and tool.type in ("function", None)
            and self._add(tool, f"{place}.tools[{number}]", found, name_of(space.name))
        ]
        self.declared.append(msgspec.structs.replace(space, tools=functions))

    def _add(
        self, tool: ResponseTool, place: str, found: Tools, namespace: str | None = None
    ) -> bool:
        neutral = tool.declared.tool
        shown = shown_name(neutral.name, namespace) if neutral.name else ""
        is_shown = found.add(msgspec.structs.replace(neutral, name=shown), place)
        if is_shown:
            self.places[shown] = FunctionPlace(neutral.name, namespace)
        return is_shown


PARAM = "input"
InputItem = dict[str, Any]
# Fields of a call that hold what is called with, and those that are no part of it.
_ARGUMENTS = ("arguments", "action", "operation", "args", "parameters")
_RETURNED = ("output", "outputs", "results", "result", "error")
_KNOWN = frozenset(_RETURNED).union(
    "name namespace server_label status role execution created_by approval_request_id".split()
)


def messages_of(body: ResponseRequest, media: MediaInputs) -> tuple[Message, ...]:
    """The instructions as a system message, then the input. Raises RequestError."""
    history = _History(media)
    for given in (body.instructions, body.system):
        if told := text_of(given, media):
            history.add(Message(role="system", content=told))
    items = input_items(body.input)
    first = newest([_role(item) for item in items.values()])
    for number, (place, item) in enumerate(items.items()):
        if number >= first and _role(item) == "user":
            check_pictures(item.get("content"), f"{PARAM}[{place}].content", PARAM, media)
        history.read(item, f"{PARAM}[{place}]")
    return history.messages


def input_items(given: MessageContent) -> dict[int, InputItem]:
    """By their places; nulls are none, and texts among them are the user's."""
    each = given if isinstance(given, list) else [given]
    return {
        place: item if isinstance(item, dict) else {"role": "user", "content": item}
        for place, item in enumerate(each)
        if item not in (None, "", [], {})
    }


def seal(thought: str) -> str:
    """A thought for a client that keeps what it cannot read: base64."""
    return base64.b64encode(thought.encode()).decode()


def _unseal(text: Any) -> str | None:
    if not isinstance(text, str) or not text:
        return None
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return None  # of another server


class _History:
    """Messages so far; what one turn of the assistant said in several items becomes one message."""

    def __init__(self, media: MediaInputs) -> None:
        self._media = media
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
        kind, role = name_of(item.get("type")) or "message", item.get("role")
        media = self._media
        if role is not None and not isinstance(role, str):
            raise RequestError(f"{place}.role must be a text.", param=PARAM)
        match kind:
            case "message":
                self._read_message(item, role_of(role))
            case "reasoning":
                self._add_thought(_thought(item, media))
            case "function_call":
                self._add_call(_call(item, "unknown", media))
            case _ if kind.endswith("_output"):
                whose = name_of(item.get("call_id")) or name_of(item.get("tool_call_id"))
                name = name_of(item.get("name"))
                self.add(result_of(item, call_id=whose, name=name, media=media))
            case _ if kind.endswith("_call") and (item.get("call_id") or item.get("name")):
                call = _call(item, kind.removesuffix("_call"), media)
                self._add_call(call)
                if any(item.get(name) for name in _RETURNED):
                    result = _result_fields(item)
                    self.add(result_of(result, call_id=call.id, name=call.name, media=media))
            case "mcp_approval_response":
                self.add(Message(role="user", content=note_of(kind, item, media)))
            case _:
                said = words_of(item, media) or note_of(kind, item, media)
                if role is None or role_of(role) == "assistant":
                    self._add_text(said)
                else:
                    self.add(Message(role=role_of(role), content=said))

    def _read_message(self, item: InputItem, role: str) -> None:
        fields = {name: item.get(name) for name in PastMessage.__struct_fields__}
        said = message_of(msgspec.convert(fields, PastMessage), role, self._media)
        if said.role != "assistant":
            self.add(said)
            return
        self._add_thought(said.thought or "")
        if said.content is not None:
            self._add_text(said.content)
        for call in said.calls:
            self._add_call(call)

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
    kind, role = name_of(item.get("type")) or "message", item.get("role")
    if kind == "message" or isinstance(role, str):
        return role_of(role if isinstance(role, str) else None)
    if kind == "mcp_approval_response":
        return "user"
    return "tool" if kind.endswith("_output") else "assistant"


def _call(item: InputItem, kind: str, media: MediaInputs) -> Call:
    """kind: its name where it has none. A call's own id answers it where no other does."""
    space = name_of(item.get("namespace")) or name_of(item.get("server_label"))
    name = shown_name(call_name(item.get("name") or kind), space)
    whose = name_of(item.get("call_id")) or name_of(item.get("id")) or ""
    given = telling_fields(item, media, _KNOWN)
    main = next((field for field in _ARGUMENTS if item.get(field) is not None), None)
    if main is not None and given.keys() <= {main}:
        return Call(whose, name, arguments_of(item[main]))
    return Call(whose, name, arguments_of(given))


def _result_fields(item: InputItem) -> InputItem:
    """The fields of a call that say what came of it."""
    return {name: item[name] for name in (*_RETURNED, "status", "is_error") if name in item}


def _thought(item: InputItem, media: MediaInputs) -> str:
    """Its text, or what this worker sealed, and a summary that says something else."""
    text = text_of(item.get("content"), media) or _unseal(item.get("encrypted_content")) or ""
    told = (text, text_of(item.get("summary"), media), text_of(item.get("text"), media))
    return "\n\n".join(filter(None, dict.fromkeys(told)))


# Of `include`.
TOLD_LOGPROBS = "message.output_text.logprobs"
SEALED = "reasoning.encrypted_content"
# Fields that need more than stored responses -> what to do instead.
_ABSENT = {
    "conversation": "Send previous_response_id, or the whole conversation as input.",
    "prompt": "Send its text as instructions.",
}


def chat_input_of(body: ResponseRequest, facts: ModelFacts, budget: Budget) -> ChatInput:
    """Raises RequestError that names the field; blocks: a schema is compiled."""
    media = MediaInputs(facts.media, budget)
    settings = facts.settings
    for field, hint in _ABSENT.items():
        if getattr(body, field):
            raise RequestError(f"{field} is not offered here.", param=field, hint=hint)
    if body.background and body.store is False:
        raise RequestError("background needs a stored response.", param="store")
    check_alternatives(top_logprobs=body.top_logprobs)
    functions = DeclaredFunctions(body.tools)
    choice = choice_of(body.tool_choice, functions.found)
    logprobs = body.top_logprobs or (0 if TOLD_LOGPROBS in (body.include or ()) else None)
    return ChatInput(
        messages=messages_of(body, media),
        media=media,
        params=GenerationParams(
            prompt_param=PARAM,
            sampling=sampling_of(body, facts, budget),
            max_tokens=tokens_of(
                max_output_tokens=body.max_output_tokens,
                n_predict=body.n_predict,
                default=settings.n_predict,
            ),
            stop=stops_of(body.stop),
            logprobs=logprobs,
            tells_progress=bool(body.stream and body.return_progress),
        ),
        tools=choice.tools,
        left_out=tuple(functions.found.left_out),
        choice=choice.mode,
        only=choice.only,
        parallel=body.parallel_tool_calls is not False,
        thinking=thinking_of(body, settings=settings, default_format=settings.reasoning_format),
        variables=body.chat_template_kwargs or {},
        truncates=truncates(body.truncation),
    )
