"""Tools of the Responses API: functions, alone or in namespaces."""

from __future__ import annotations

import msgspec

from worker.api.common.chat.past_message import spelled
from worker.api.common.chat.tools import Tools
from worker.api.responses.schemas import ResponseTool, ResponseTools

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
        found = self.found = Tools()
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
                found.add_kind(spelled(tool.type) or "")

    def _add_space(self, space: ResponseTool, place: str, found: Tools) -> None:
        inside = space.tools if isinstance(space.tools, list) else ()
        functions: ResponseTools = [
            tool
            for number, tool in enumerate(inside)
            if isinstance(tool, ResponseTool)
            and tool.type in ("function", None)
            and self._add(tool, f"{place}.tools[{number}]", found, spelled(space.name))
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
