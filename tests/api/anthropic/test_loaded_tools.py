"""Which declared tools are shown: those that the conversation loaded, as Claude Code does it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from worker.api.anthropic.loaded_tools import loaded_tools
from worker.api.anthropic.schemas import MessagesRequest
from worker.api.intake.chat.tools import tools_of

READ = {"name": "Read"}
LATER = {"name": "Cron", "defer_loading": True}
OTHER = {"name": "Web", "defer_loading": True}
FOUND: dict[str, Any] = {
    "type": "tool_result",
    "content": [{"type": "tool_reference", "tool_name": "Cron"}],
}
NAMED = {"type": "tool_reference", "name": "Cron"}
ADDED = {"type": "tool_addition", "tool": NAMED}
REMOVED = {"type": "tool_removal", "tool": NAMED}
DEFINED: dict[str, Any] = {
    "type": "tool_addition",
    "tool": {"type": "tool_definition", "definition": {"name": "New", "input_schema": {}}},
}
SEARCH = {"type": "tool_search_tool_regex_20251119", "name": "search"}
WRONG: list[dict[str, Any]] = [
    {"type": "tool_addition"},
    {"type": "tool_addition", "tool": {"definition": 7}},
    {"type": "tool_removal", "tool": {"name": []}},
    {"type": "tool_result", "content": "Cron"},
]


CASES: list[tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]] = [
    ([], [READ, LATER, OTHER], ["Read"]),
    ([FOUND], [READ, LATER, OTHER], ["Read", "Cron"]),
    ([ADDED], [LATER, READ], ["Cron", "Read"]),
    ([FOUND, REMOVED], [READ, LATER], ["Read"]),
    ([REMOVED, ADDED], [READ, LATER], ["Read", "Cron"]),
    ([DEFINED], [READ], ["Read", "New"]),
    ([], [SEARCH, LATER], ["Cron"]),
    (WRONG, [READ, LATER], ["Read"]),
    ([FOUND], [], []),
]


@pytest.mark.parametrize(("blocks", "tools", "shown"), CASES)
def test_shown(blocks: list[dict[str, Any]], tools: list[dict[str, Any]], shown: list[str]) -> None:
    """A deferred tool waits for a block that refers to it, unless nobody here could search it."""
    body = {"messages": [{"role": "user", "content": blocks}], "tools": tools}
    request = msgspec.convert(body, MessagesRequest)
    found = tools_of(loaded_tools(request, None), (None, "custom"))
    assert [tool.name for tool in found.shown] == shown


def test_chosen() -> None:
    """A tool that must be called is shown."""
    request = msgspec.convert({"messages": [], "tools": [READ, LATER]}, MessagesRequest)
    found = tools_of(loaded_tools(request, "Cron"), (None,))
    assert [tool.name for tool in found.shown] == ["Read", "Cron"]
