"""worker fleet status: models, replicas and load of a running fleet."""

from __future__ import annotations

import argparse
from typing import Any

from rich.table import Table

from worker.cli.console import data_console, plain, titled, write_json
from worker.cli.top.address import address_from, ask
from worker.machine import human_bytes


def run(arguments: argparse.Namespace) -> int:
    """Print what the fleet says. Raises UsageError, WatchError."""
    address = address_from(arguments)
    said = ask(address, "/fleet")
    if arguments.json:
        write_json(said)
    else:
        data_console().print(titled(f"{address}: {said['status']}", _table(said["models"])))
    return 0


def _table(models: dict[str, Any]) -> Table:
    table = Table(box=None)
    for name in ("model", "replica", "node", "runs", "waits", "sequences", "memory", ""):
        right = name in ("runs", "waits", "sequences", "memory")
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for name, model in models.items():
        for each in model["replicas"]:
            table.add_row(
                plain(name), plain(each["id"]), plain(each["node"][:8]),
                str(each["slots_processing"]), str(each["queue_depth"]), str(each["slots"]),
                human_bytes(each["memory_bytes"]), "" if each["well"] else "does not answer",
            )  # fmt: skip
        if not model["replicas"]:
            why = "sleeps" if model["wanted"] == 0 else "no replica is ready"
            table.add_row(plain(name), "-", "-", "-", "-", "-", "-", why)
        more = (model["wanted"] or 0) - len(model["replicas"])
        if more > 0:
            table.add_row(plain(name), "-", "-", "-", "-", "-", "-", f"{more} more to come")
    return table
