"""The command and its three parts, each imported when it runs."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from worker.cli.options import add_options

_DEFAULT_URL = "http://127.0.0.1:8000"


def add_parser(commands: Any, line: str) -> None:
    """Register the command; `line` is its help in one line."""
    parser = commands.add_parser(
        "fleet",
        help=line,
        description="Serve several models, or several replicas of one, behind one endpoint. Ray "
        "Serve places the workers and keeps them alive; it comes with the extra ray.",
        epilog="Example: worker fleet serve fleet.toml",
        allow_abbrev=False,
    )
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
    plan = parts.add_parser(
        "plan",
        help="say what would run where, and whether it fits",
        description="CPUs and memory of each replica, and a place for each. Nothing is loaded, "
        "and without --address Ray is not needed. Exits with 4 when it does not fit.",
        epilog="Example: worker fleet plan fleet.toml --json",
        allow_abbrev=False,
    )
    _add_file(plan)
    plan.add_argument("--json", action="store_true", help="machine-readable output")
    serve = parts.add_parser(
        "serve",
        help="serve it until told to stop",
        description="Start a cluster of this machine alone, or join one, and serve the fleet "
        "until SIGINT or SIGTERM; then its streams get their drain time.",
        epilog="Example: worker fleet serve fleet.toml --address 10.0.0.1:6379",
        allow_abbrev=False,
    )
    _add_file(serve)
    status = parts.add_parser(
        "status",
        help="say what a running fleet does",
        description="Models, replicas, their nodes and their load.",
        epilog=f"Example: worker fleet status {_DEFAULT_URL} --api-key-file ~/.fleet-key",
        allow_abbrev=False,
    )
    status.add_argument(
        "url", nargs="?", default=_DEFAULT_URL, metavar="URL",
        help=f"the fleet's address ({_DEFAULT_URL})",
    )  # fmt: skip
    add_options(status, "api_key", "api_key_file")
    status.add_argument("--json", action="store_true", help="machine-readable output")
    for name, part in (("plan", plan), ("serve", serve), ("status", status)):
        part.set_defaults(run=_runner(name))


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE",
        help="fleet.toml (default: two workers of the demo model)",
    )  # fmt: skip
    parser.add_argument(
        "--address", metavar="HOST:PORT",
        help="join the Ray cluster whose head is there (default: this machine alone)",
    )  # fmt: skip


def _runner(name: str) -> Any:
    def run(arguments: argparse.Namespace) -> int:
        return importlib.import_module(f"worker.cli.fleet.{name}").run(arguments)

    return run
