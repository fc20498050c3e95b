"""The terminal: data to stdout, prose to stderr."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from gguf_fleet.text import harmless

# Without a terminal rich assumes 80 columns, and would fold lines that a program reads.
_WIDTH_WITHOUT_TERMINAL = 120


def write(title: str, table: Table) -> None:
    """A table below its title to stdout. rich's own titles are folded where it is narrow."""
    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    Console(width=width, highlight=False).print(Group(Text(harmless(title), style="bold"), table))


def write_json(value: Any) -> None:
    """One line of JSON to stdout, in UTF-8 whatever the locale."""
    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def plain(text: str) -> Text:
    return Text(harmless(text))
