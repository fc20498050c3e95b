"""Tools of a Talk, checked before anything is made of them."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable

import msgspec

from worker import log
from worker.chat.message import Tool
from worker.errors import RequestError
from worker.limits import TOOLS

_MAX_KIND = 40
_MAX_NAME = 256


class ToolChoice(msgspec.Struct, frozen=True):
    """What may be called.

    mode     auto; required: at least one call; none: no call
    only     the one tool that may be called; None: any
    allowed  of the tools these alone are shown to the model; None: all
    """

    mode: str = "auto"
    only: str | None = None
    allowed: tuple[str, ...] | None = None

    def among(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        """Those that the model is shown."""
        if self.allowed is None:
            return tools
        return tuple(tool for tool in tools if tool.name in self.allowed)


def check_tools(tools: Iterable[tuple[int, Tool]], name: str = "name") -> None:
    """Raise RequestError that names the field.

    tools  each with its place in the client's list
    name   the field of the name in a tool of the client's
    """
    seen: set[str] = set()
    for place, tool in tools:
        if not 1 <= len(tool.name) <= _MAX_NAME:
            raise RequestError(
                f"tools[{place}].{name} must be 1 to {_MAX_NAME} characters.",
                param=f"tools[{place}].{name}",
            )
        if tool.name in seen:
            raise RequestError(
                f"tools[{place}].{name} is the name of a tool before it.",
                param=f"tools[{place}].{name}",
            )
        seen.add(tool.name)
        if len(seen) > TOOLS.most:
            raise RequestError(f"There may be {TOOLS.most} tools at most.", param="tools")


def left_out(kind: str) -> str:
    """What the client is told of tools of this type: nobody here would run them.

    The log says it once for each type: clients send them with each request.
    """
    kind = log.harmless(kind[:_MAX_KIND])
    _tell_skipped(kind)
    return f"Tools of the type {kind} are left out."


@functools.lru_cache(maxsize=64)
def _tell_skipped(kind: str) -> None:
    log.get("service").warning("tools of this type are left out", type=kind)


def check_choice(choice: ToolChoice, names: Collection[str], param: str = "tool_choice") -> None:
    """Raise RequestError where it asks for a call of what is not there. names: of all tools"""
    for name in (*((choice.only,) if choice.only is not None else ()), *(choice.allowed or ())):
        if name not in names:
            raise RequestError(f"{param} names {name!r}, which is no tool.", param=param)
    if choice.mode == "required" and not (names if choice.allowed is None else choice.allowed):
        raise RequestError(f"{param} asks for a call, and there are no tools.", param=param)
