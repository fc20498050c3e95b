"""Tools for models whose template knows none: described in words of ours, called in JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from worker.chat.message import Tool

OPEN, CLOSE = "<tool_call>", "</tool_call>"
EXAMPLE = f'{OPEN}{{"name": "NAME", "arguments": {{"KEY": "VALUE"}}}}{CLOSE}'


def tools_prompt(tools: Sequence[Tool], example: str) -> str:
    """What the system message says of tools; `example` is a call of NAME with KEY and VALUE."""
    lines = [
        msgspec.json.encode(
            {
                "name": tool.name,
                "description": tool.description or "",
                "parameters": tool.parameters,
            }
        ).decode()
        for tool in tools
    ]
    return (
        "You can call these tools. Each line is one tool, with the JSON schema of its arguments:\n"
        + "\n".join(lines)
        + "\n\nTo call a tool, write exactly this, with its name and its arguments, and then wait "
        f"for the result:\n{example}\n\nWrite one such text for each call. Where no tool is "
        "needed, just answer."
    )
