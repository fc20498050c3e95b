"""The choice among tools, as OpenAI's two APIs write it."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from worker.api.common.talk.tools import ToolChoice, check_choice
from worker.chat.message import Tool
from worker.errors import RequestError

# Words for what may be called, also those of Anthropic and Mistral -> ours.
_MODES = {"auto": "auto", "required": "required", "any": "required", "none": "none"}
_FORMS = 'auto, none, required, or an object of type "function" with a name'


# Types of tools that the client runs; others are left out, here as among `tools`.
_OWN = ("function", "tool", "custom", None)


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


def choice_of(asked: str | ChoiceObject | None, tools: tuple[Tool, ...]) -> ToolChoice:
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
            own = [tool for tool in allowed.tools or () if tool.type in _OWN]
            names = tuple(_name(tool) for tool in own)
            mode = _mode(allowed.mode or "auto", _MODES.keys() - {"none"})
            choice = ToolChoice(mode, allowed=names)
        case _:
            choice = ToolChoice("required", only=_name(asked))
    check_choice(choice, {tool.name for tool in tools})
    return choice


def _mode(word: str, known: Collection[str]) -> str:
    if word not in known:
        raise RequestError(f"tool_choice must be {_FORMS}.", param="tool_choice")
    return _MODES[word]


def _name(tool: NamedTool) -> str:
    name = tool.function.name if tool.function is not None else tool.name
    if tool.type not in _OWN or name is None:
        raise RequestError(f"tool_choice must be {_FORMS}.", param="tool_choice")
    return name
