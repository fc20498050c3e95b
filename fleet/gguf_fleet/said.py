"""What a child process writes to standard error."""

from __future__ import annotations

import asyncio
import sys
from collections import deque

import msgspec


class _LogLine(msgspec.Struct):
    event: str


def sentence_of(line: str) -> str:
    """What a line of a log in JSON says, `error: CODE: sentence` of a failed worker; another line
    as it is."""
    try:
        return msgspec.json.decode(line, type=_LogLine).event
    except msgspec.DecodeError:
        return line


async def pass_on(process: asyncio.subprocess.Process, last: deque[str]) -> None:
    """To where this process logs, line by line, until it ends; `last` keeps the latest lines."""
    assert process.stderr is not None
    async for line in process.stderr:
        text = line.decode("utf-8", "replace")
        last.append(text.strip())
        sys.stderr.write(text)
