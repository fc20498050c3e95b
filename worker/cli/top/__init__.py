"""worker top: what a running worker does, live; once for a pipe."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from worker.cli.address import address_from
from worker.cli.console import data_console, write_json
from worker.cli.top.screen import LiveReply, look, view, watch


def run(arguments: argparse.Namespace) -> int:
    """Show it. Raises UsageError, and WatchError where there is nothing to show."""
    address, console = address_from(arguments), data_console()
    if arguments.json:
        write_json(look(address, dict[str, Any]))
    elif arguments.once or not sys.stdout.isatty() or console.is_dumb_terminal:
        for line in view(address.url, look(address, LiveReply), console.options):
            console.print(line)
    else:
        watch(address)
    return 0
