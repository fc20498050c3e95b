"""The terminal: data to stdout, prose and progress to stderr."""

from __future__ import annotations

import sys
from typing import Any, cast

import msgspec
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from worker.log import harmless, in_utf8

# Without a terminal rich assumes 80 columns, and would fold lines that a program reads.
_WIDTH_WITHOUT_TERMINAL = 120


def data_console() -> Console:
    """Standard output, for the data that the user asked for.

    It raises BrokenPipeError, which `main` handles, when the reader has gone; rich would exit.
    """

    class DataConsole(Console):
        def on_broken_pipe(self) -> None:
            self.quiet = True
            raise BrokenPipeError

    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    return DataConsole(width=width, highlight=False)


def write_json(value: Any) -> None:
    r"""One line of JSON on stdout, in UTF-8 whatever the locale.

    A byte of a file's name that is not UTF-8 becomes \xNN.
    """
    try:
        line = msgspec.json.encode(value)
    except UnicodeEncodeError:
        line = msgspec.json.encode(_in_utf8(msgspec.to_builtins(value)))
    sys.stdout.flush()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def _in_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return in_utf8(value)
    if isinstance(value, list | tuple):
        return [_in_utf8(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {_in_utf8(k): _in_utf8(v) for k, v in cast("dict[Any, Any]", value).items()}
    return value


def new_table(*headers: str, **options: Any) -> Table:
    """rich's, with its options."""
    return Table(*headers, **options)


def with_title(title: str, table: Table) -> Group:
    """A table below its title. rich's own titles are folded where the table is narrow."""
    heading = plain(title)
    heading.stylize("bold")
    return Group(heading, table)


def pairs(title: str, rows: dict[str, str]) -> Group:
    """A titled table of names and values; values are text, never markup."""
    table = new_table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(plain(name), plain(value))
    return with_title(title, table)


def plain(text: str) -> Text:
    """Text from a model file, without markup and without characters that control a terminal."""
    return Text("\n".join(map(harmless, text.split("\n"))))


def one_line(text: str) -> Text:
    """The same in one line: what a file's name breaks, a reader of lines would too."""
    return Text(harmless(text))
