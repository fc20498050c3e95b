"""Tools of a ChatInput, as clients declare them and as a model can write their names."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Sized
from typing import Any

import msgspec

from worker import log
from worker.api.intake.chat.chat_input import ChatInput
from worker.api.intake.chat.content_parts import MessageContent, text_of
from worker.api.intake.chat.past_message import Spelled, name_of
from worker.api.intake.media_inputs import MediaInputs
from worker.chat.message import Message, Tool
from worker.chat.reader import CallBegun, ChatEvent, ChatReader
from worker.errors import RequestError
from worker.limits import TOOLS

_MAX_KIND = 40
_MAX_NAME = 256
# Words for what may be called, also those of Anthropic and Mistral -> ours.
_MODES = {"auto": "auto", "required": "required", "any": "required", "none": "none"}
_FORMS = 'auto, none, required, or an object of type "function" with a name'
# Types that a choice gives tools that the client runs; it may name others, which are left out.
_CHOSEN = ("function", "tool", "custom", None)


AnySchema = dict[str, Any] | list[Any] | Spelled


class DeclaredFunction(msgspec.Struct):
    """A function that the model may call.

    parameters    JSON schema of its arguments; what is none leaves them free
    input_schema, inputSchema
                  Anthropic's name of it, and MCP's
    strict        told in what is echoed
    """

    name: MessageContent = None
    description: MessageContent = None
    parameters: AnySchema = None
    input_schema: AnySchema = None
    mcp_schema: AnySchema = msgspec.field(default=None, name="inputSchema")
    strict: AnySchema = None

    @property
    def tool(self) -> Tool:
        """In its neutral form; without a name its name is empty."""
        schemas = (self.parameters, self.input_schema, self.mcp_schema)
        given = [schema for schema in schemas if isinstance(schema, dict)]
        schema = given[0] if given else {}
        told = None if self.description is None else text_of(self.description, MediaInputs())
        return Tool(name=name_of(self.name) or "", description=told, parameters=schema)


class DeclaredTool(DeclaredFunction):
    """A tool: a function here, or one level deeper as chats have it.

    type           function, custom in Anthropic's API, or nothing; others are run by nobody here
    defer_loading  Anthropic's: true hides it until a message loads it
    """

    type: MessageContent = None
    defer_loading: AnySchema = None
    function: DeclaredFunction | list[Any] | Spelled = None

    @property
    def declared(self) -> DeclaredFunction:
        """Where its name stands."""
        return self.function if isinstance(self.function, DeclaredFunction) else self


# What is no object is left out.
DeclaredTools = list[DeclaredTool | list[Any] | Spelled] | None


class Tools:
    """What of the declared tools the model may be shown: too many refuse a request, no other does.

    left_out  a sentence for each of the others
    """

    def __init__(self, declared: Sized | None) -> None:
        """declared: the client's list. Raises RequestError for too many."""
        _check_number(len(declared or ()))
        self.left_out: list[str] = []
        self._found: dict[str, Tool] = {}

    @property
    def shown(self) -> tuple[Tool, ...]:
        """In the order in which they were added."""
        return tuple(self._found.values())

    def add(self, tool: Tool, place: str) -> bool:
        """Whether it is shown; place: the client's field. Raises RequestError for too many."""
        if not tool.name:
            self.leave_out(f"{place} has no name")
        elif len(tool.name) > _MAX_NAME:
            self.leave_out(f"{place} has a name of more than {_MAX_NAME} characters")
        elif tool.name not in self._found:
            self._found[tool.name] = tool
            _check_number(len(self._found))
            return True
        elif tool != self._found[tool.name]:
            self.leave_out(f"{place} has the name of a tool before it")
        return False

    def add_kind(self, kind: str) -> None:
        """One of a type that nobody here runs. The log says it once for each type: clients send
        them with each request."""
        kind = log.harmless(kind[:_MAX_KIND])
        _tell_skipped(kind)
        said = f"Tools of the type {kind} are left out."
        if said not in self.left_out:
            self.left_out.append(said)

    def leave_out(self, why: str) -> None:
        """One that cannot be read. why: begins with the client's field"""
        said = f"{why} and is left out."
        _tell_left_out(said)
        self.left_out.append(said)


def _check_number(count: int) -> None:
    if count > TOOLS.most:
        raise RequestError(f"There may be {TOOLS.most} tools at most.", param="tools")


def tools_of(declared: DeclaredTools, own: Collection[str | None] = ("function", None)) -> Tools:
    """A client's tools. own: the types of those that it runs itself. Raises RequestError."""
    tools = Tools(declared)
    for place, tool in enumerate(declared or ()):
        if tool is None:
            continue
        if not isinstance(tool, DeclaredTool):
            tools.leave_out(f"tools[{place}] is no object")
        elif (kind := name_of(tool.type)) in own:
            tools.add(tool.declared.tool, f"tools[{place}]")
        else:
            tools.add_kind(kind or "")
    return tools


class ToolChoice(msgspec.Struct, frozen=True):
    """What may be called.

    mode     auto; required: at least one call; none: no call
    only     the one tool that may be called; None: any
    allowed  of the tools these alone are shown to the model; None: all
    tools    that are shown
    """

    mode: str = "auto"
    only: str | None = None
    allowed: tuple[str, ...] | None = None
    tools: tuple[Tool, ...] = ()


@functools.lru_cache(maxsize=64)
def _tell_skipped(kind: str) -> None:
    log.get("service").warning("tools of this type are left out", type=kind)


@functools.lru_cache(maxsize=64)
def _tell_left_out(said: str) -> None:
    log.get("service").warning("a tool cannot be read", why=said)


def settle(choice: ToolChoice, tools: Tools, param: str = "tool_choice") -> ToolChoice:
    """The choice, with the tools that are shown. Raises RequestError where it asks for a call of
    what is not there."""
    shown = tools.shown
    if choice == ToolChoice():
        return ToolChoice(tools=shown)
    names = {tool.name for tool in shown}
    why = " ".join(["", *tools.left_out])
    for name in (*((choice.only,) if choice.only is not None else ()), *(choice.allowed or ())):
        if name not in names:
            raise RequestError(
                f"{param} names {name!r}, which is no tool.{why}",
                param=param,
                hint=f"Name one of {', '.join(sorted(names)[:8])}." if names else "Send tools.",
            )
    if choice.mode == "required" and not (names if choice.allowed is None else choice.allowed):
        raise RequestError(
            f"{param} asks for a call, and there are no tools.{why}",
            param=param,
            hint="Send tools, or leave it out.",
        )
    if choice.allowed is not None:
        shown = tuple(tool for tool in shown if tool.name in choice.allowed)
    return msgspec.structs.replace(choice, tools=shown)


class NamedTool(msgspec.Struct):
    """A tool that a choice names: its name stands here, or one level deeper in chat."""

    type: str | None = None
    name: str | None = None
    function: NamedTool | None = None


class AllowedTools(msgspec.Struct):
    """A choice among some of the tools; mode is auto or required."""

    mode: str | None = None
    tools: list[NamedTool] | None = None


class ChoiceObject(NamedTool):
    """One tool, or `allowed_tools`; their list stands here, or one level deeper in chat."""

    mode: str | None = None
    tools: list[NamedTool] | None = None
    allowed_tools: AllowedTools | None = None


def choice_of(asked: str | ChoiceObject | None, tools: Tools) -> ToolChoice:
    """The client's `tool_choice`. Raises RequestError where it is none, or names no tool."""
    choice = ToolChoice()
    match asked:
        case None | "":
            pass
        case str():
            choice = ToolChoice(_mode(asked, _MODES))
        case ChoiceObject(type=str(word)) if word in _MODES:
            choice = ToolChoice(_MODES[word])
        case ChoiceObject(type="allowed_tools"):
            allowed = asked.allowed_tools or AllowedTools(asked.mode, asked.tools)
            own = [tool for tool in allowed.tools or () if tool.type in _CHOSEN]
            names = tuple(_name(tool) for tool in own)
            mode = _mode(allowed.mode or "auto", _MODES.keys() - {"none"})
            choice = ToolChoice(mode, allowed=names)
        case _:
            choice = ToolChoice("required", only=_name(asked))
    return settle(choice, tools)


def _mode(word: str, known: Collection[str]) -> str:
    if word not in known:
        raise RequestError(f"tool_choice must be {_FORMS}.", param="tool_choice")
    return _MODES[word]


def _name(tool: NamedTool) -> str:
    name = tool.function.name if tool.function is not None else tool.name
    if tool.type not in _CHOSEN:
        kind = log.harmless(tool.type[:_MAX_KIND]) if tool.type else ""
        raise RequestError(
            f"tool_choice asks for a tool of the type {kind}, which is left out.",
            param="tool_choice",
        )
    if name is None:
        raise RequestError(f"tool_choice must be {_FORMS}.", param="tool_choice")
    return name


_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")
_MAX = 64


class ToolNames:
    """The client's names that some format of calls could not carry, and what they become: letters,
    digits and _-, each another one."""

    def __init__(self, names: Iterable[str]) -> None:
        self._shown: dict[str, str] = {}
        self._given: dict[str, str] = {}
        names = tuple(dict.fromkeys(names))
        taken = {name for name in names if _PLAIN.fullmatch(name)}
        for name in names:
            if name in taken:
                continue
            short = _OTHER.sub("_", name).strip("_")[:_MAX] or "tool"
            shown, count = short, 1
            while shown in taken:
                count += 1
                shown = f"{short}_{count}"
            taken.add(shown)
            self._shown[name], self._given[shown] = shown, name

    def rename(self, talk: ChatInput) -> ChatInput:
        """The same with names as the model sees them."""
        if not self._shown:
            return talk
        return msgspec.structs.replace(
            talk,
            messages=tuple(self._message(message) for message in talk.messages),
            tools=tuple(
                msgspec.structs.replace(tool, name=self._shown.get(tool.name, tool.name))
                for tool in talk.tools
            ),
            only=self._shown.get(talk.only or "", talk.only),
        )

    def reader(self, reader: ChatReader) -> ChatReader:
        """The same, with the names that the client gave."""
        return _NamedReader(reader, self._given) if self._given else reader

    def _message(self, message: Message) -> Message:
        calls = tuple(
            msgspec.structs.replace(call, name=self._shown.get(call.name, call.name))
            for call in message.calls
        )
        name = message.name
        if message.role == "tool" and name is not None:
            name = self._shown.get(name, name)
        return msgspec.structs.replace(message, calls=calls, name=name)


def names_of(talk: ChatInput) -> ToolNames:
    """Of its tools, and of those that were called before."""
    called = (call.name for message in talk.messages for call in message.calls)
    return ToolNames([*(tool.name for tool in talk.tools), *called])


class _NamedReader:
    """A reader whose calls have the client's names."""

    def __init__(self, reader: ChatReader, names: dict[str, str]) -> None:
        self._reader, self._names = reader, names

    @property
    def is_thinking(self) -> bool:
        return self._reader.is_thinking

    def feed(self, text: str) -> list[ChatEvent]:
        return [self._rename(event) for event in self._reader.feed(text)]

    def finish(self) -> list[ChatEvent]:
        return [self._rename(event) for event in self._reader.finish()]

    def _rename(self, event: ChatEvent) -> ChatEvent:
        if not isinstance(event, CallBegun) or event.name not in self._names:
            return event
        return msgspec.structs.replace(event, name=self._names[event.name])
