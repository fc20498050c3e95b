"""Tools and the choice among them, as OpenAI's two APIs write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from worker.chat.message import Tool
from worker.errors import RequestError
from worker.service.talk.tools import ToolChoice, check_choice, check_tools

_MODES = ("auto", "required", "none")
_FORMS = 'auto, none, required, or an object of type "function" with a name'


class DeclaredFunction(msgspec.Struct):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | bool | str | None = None


class DeclaredTool(msgspec.Struct):
    """A tool; only functions are known."""

    type: str | None = None
    function: DeclaredFunction | None = None


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


def tools_of(declared: list[DeclaredTool] | None) -> tuple[Tool, ...]:
    """A chat client's functions. Raises RequestError that names the field."""
    tools: list[Tool] = []
    for place, tool in enumerate(declared or ()):
        function = tool.function
        if tool.type not in ("function", None):
            continue
        if function is None:
            raise RequestError(
                f"tools[{place}] is not a function.",
                param=f"tools[{place}]",
                hint='Write {"type": "function", "function": {"name": ..., "parameters": ...}}.',
            )
        tools.append(tool_of(function))
    check_tools(enumerate(tools), "function.name")
    return tuple(tools)


def others_of(declared: Iterable[DeclaredTool] | None) -> tuple[str, ...]:
    """The types of the tools that are no functions."""
    return tuple(tool.type for tool in declared or () if tool.type not in ("function", None))


def tool_of(function: DeclaredFunction) -> Tool:
    """In its neutral form."""
    return Tool(
        name=function.name,
        description=function.description,
        parameters=function.parameters if isinstance(function.parameters, dict) else {},
    )


def choice_of(asked: str | ChoiceObject | None, tools: tuple[Tool, ...]) -> ToolChoice:
    """The client's `tool_choice`. Raises RequestError where it is none, or names no tool."""
    choice = ToolChoice()
    match asked:
        case None | "":
            pass
        case str():
            choice = ToolChoice(_mode(asked, _MODES))
        case ChoiceObject(type="allowed_tools"):
            allowed = asked.allowed_tools or AllowedTools(asked.mode, asked.tools)
            names = tuple(_name(tool) for tool in allowed.tools or ())
            mode = _mode(allowed.mode or "auto", ("auto", "required"))
            choice = ToolChoice(mode, allowed=names)
        case _:
            choice = ToolChoice("required", only=_name(asked))
    check_choice(choice, {tool.name for tool in tools})
    return choice


def _mode(text: str, modes: tuple[str, ...]) -> str:
    if text not in modes:
        raise RequestError(f"tool_choice must be {_FORMS}.", param="tool_choice")
    return text


def _name(tool: NamedTool) -> str:
    name = tool.function.name if tool.function is not None else tool.name
    if tool.type not in ("function", None) or name is None:
        raise RequestError(f"tool_choice must be {_FORMS}.", param="tool_choice")
    return name
