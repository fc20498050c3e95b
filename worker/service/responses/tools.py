"""Tools of the Responses API: functions, alone or in namespaces."""

from __future__ import annotations

import msgspec

from worker.chat.message import Tool
from worker.errors import RequestError
from worker.service.responses.schemas import ResponseTool
from worker.service.talk.tools import check_tools

_JOINT = "__"


class Place(msgspec.Struct, frozen=True):
    """Where a client finds a function: its name, in a namespace or in none."""

    name: str
    namespace: str | None = None


def shown_name(name: str, namespace: str | None) -> str:
    """What the model calls it: `crm__find`, also for the namespace `crm__`."""
    return name if namespace is None else namespace.removesuffix(_JOINT) + _JOINT + name


class DeclaredFunctions:
    """The functions that a client declares. Other tools are skipped.

    tools     as the model sees them
    places    the model's name of a function -> where the client finds it
    left_out  types of the tools that were skipped
    declared  what was not skipped, as it was declared
    """

    def __init__(self, declared: list[ResponseTool] | None) -> None:
        """Raises RequestError that names the field."""
        self.tools: tuple[Tool, ...] = ()
        self.places: dict[str, Place] = {}
        self.declared: list[ResponseTool] = []
        found: list[tuple[int, Tool]] = []
        kinds: list[str] = []
        for number, tool in enumerate(declared or ()):
            if tool.type == "namespace":
                found += [(number, inner) for inner in self._inside(tool, number)]
            elif tool.type in ("function", None):
                self.declared.append(tool)
                found.append((number, self._tool(tool)))
            else:
                kinds.append(tool.type)
        check_tools(found)
        self.left_out = tuple(kinds)
        self.tools = tuple(tool for _, tool in found)

    def _inside(self, space: ResponseTool, number: int) -> list[Tool]:
        """A namespace's functions."""
        if not space.name:
            raise RequestError(
                f"tools[{number}] is a namespace without a name.", param=f"tools[{number}].name"
            )
        functions = [tool for tool in space.tools or () if tool.type in ("function", None)]
        self.declared.append(msgspec.structs.replace(space, tools=functions))
        return [self._tool(tool, space.name) for tool in functions]

    def _tool(self, tool: ResponseTool, namespace: str | None = None) -> Tool:
        name = tool.name or ""
        shown = shown_name(name, namespace)
        self.places[shown] = Place(name, namespace)
        return Tool(name=shown, description=tool.description, parameters=tool.parameters or {})
