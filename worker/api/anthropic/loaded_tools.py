"""Which tools of an Anthropic client the model is shown: a conversation loads and removes some."""

from __future__ import annotations

import contextlib
from typing import Any, cast

import msgspec

from worker.api.anthropic.schemas import MessagesRequest
from worker.api.intake.chat.content_parts import ContentPart, parts_of
from worker.api.intake.chat.past_message import name_of
from worker.api.intake.chat.tools import DeclaredTool, DeclaredTools

_SEARCH = "tool_search_tool"  # types of tools by which Anthropic's servers would search


def loaded_tools(body: MessagesRequest, chosen: str | None) -> DeclaredTools:
    """The declared tools, null instead of those that are not loaded, and those of the messages.

    A tool with defer_loading is loaded by a block that refers to it: in the result of the client's
    own search, or in a change of tools. Where the server was to search, all are.
    chosen: the tool that must be called
    """
    declared = body.tools or []
    is_searched = any(
        isinstance(tool, DeclaredTool) and (name_of(tool.type) or "").startswith(_SEARCH)
        for tool in declared
    )
    is_loaded: dict[str, bool] = {}
    defined: dict[str, DeclaredTool] = {}
    for message in body.messages or ():
        for block in parts_of(message.content) if message else ():
            _load(block, is_loaded, defined)
    if chosen is not None:
        is_loaded[chosen] = True

    def is_shown(tool: DeclaredTool) -> bool:
        is_there = is_searched or tool.defer_loading is not True
        return is_loaded.get(name_of(tool.declared.name) or "", is_there)

    return [
        *(
            tool if not isinstance(tool, DeclaredTool) or is_shown(tool) else None
            for tool in declared
        ),
        *(tool for tool in defined.values() if is_shown(tool)),
    ]


def _load(block: ContentPart, is_loaded: dict[str, bool], defined: dict[str, DeclaredTool]) -> None:
    """What one block of a message changes."""
    kind = block.get("type")
    if kind == "tool_result":
        for part in parts_of(block.get("content")):
            if part.get("type") == "tool_reference":
                is_loaded[name_of(part.get("tool_name")) or ""] = True
    elif kind in ("tool_addition", "tool_removal") and isinstance(block.get("tool"), dict):
        tool = cast("dict[str, Any]", block["tool"])
        name = name_of(tool.get("name"))
        with contextlib.suppress(msgspec.ValidationError):
            if tool.get("definition") is not None:
                definition = msgspec.convert(tool["definition"], DeclaredTool)
                name = name_of(definition.declared.name)
                defined[name or ""] = definition
        is_loaded[name or ""] = kind == "tool_addition"
