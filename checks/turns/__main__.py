"""`python -m checks.turns`: a table of what is and what should be; `--json` for programs.

functions, files   code objects of worker/ that one streamed chat runs, comprehensions among them
                   (Python 3.12 has fewer of these), and the files that hold them; the demo model,
                   the third request, `sys.setprofile` in each thread
returns            stays in a file that was read before, in reading a chat's body: `walk.walk_of`
climbs             how often the file of `ask` calls another one while it makes a prompt of it
whole model        parameters whose annotation names `Loaded`
modules, lines     that are imported with OpenAI's routes, without imports inside functions
ContextVars        that are made
inner imports      imports inside functions
fmt: skip          lines that the formatter leaves
participles        public functions and methods named by a bare participle, properties left out
lines              of worker/
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from checks.turns.run import Call, record
from checks.turns.source import lines_of, reached, source
from checks.turns.walk import climbs_of, run_of, walk_of

ROUTES = "api/openai/routes.py"
READS = ("api/intake/chat/chat_request.py", "chat_input_of")
ASKS = ("chat/asking.py", "ask")


class Row(msgspec.Struct, frozen=True):
    """One figure, and the most that it should be."""

    name: str
    now: int
    goal: int


def rows() -> list[Row]:
    """Serves one chat, and reads the source. Raises RuntimeError, LookupError."""
    calls = list(record())
    functions = {call.function for call in calls}
    found, modules = source(), reached(ROUTES)
    return [
        Row("functions of a streamed chat", len(functions), 450),
        Row("files of a streamed chat", len({each.file for each in functions}), 75),
        Row("returns in reading its body", walk_of(run_of(calls, *READS)).returns, 20),
        Row("climbs of ask", climbs_of(run_of(calls, *ASKS)), 3),
        Row("whole model", found.loaded, 40),
        Row("modules with OpenAI's routes", len(modules), 160),
        Row("lines with OpenAI's routes", lines_of(modules), 28_000),
        Row("ContextVars", found.context_vars, 1),
        Row("inner imports", found.inner_imports, 110),
        Row("fmt: skip", found.skips, 100),
        Row("participles", len(found.participles), 0),
        Row("lines", found.lines, 58_500),
    ]


def main() -> int:
    """Print the table; exit code 1 where a figure is above its goal."""
    parser = argparse.ArgumentParser(
        prog="python -m checks.turns",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.add_argument("--calls", action="store_true", help="print the tree of calls")
    asked = parser.parse_args()
    if asked.calls:
        for root in record().roots:
            _print(root)
        return 0
    found = rows()
    if asked.json:
        told: dict[str, Any] = {row.name: {"now": row.now, "goal": row.goal} for row in found}
        print(msgspec.json.encode(told).decode())
    else:
        table = Table("", "now", "goal")
        for row in found:
            style = "" if row.now <= row.goal else "red"
            table.add_row(row.name, f"{row.now:,}", f"{row.goal:,}", style=style)
        Console(highlight=False).print(table)
    return int(any(row.now > row.goal for row in found))


def _print(call: Call, depth: int = 0) -> None:
    print(f"{'  ' * depth}{call.function.file} {call.function.name}")
    for each in call.calls:
        _print(each, depth + 1)


if __name__ == "__main__":
    sys.exit(main())
