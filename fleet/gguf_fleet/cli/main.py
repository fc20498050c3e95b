"""The command and its three parts, each imported when it runs; errors become exit codes."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from gguf_fleet.errors import FleetError, UsageError
from gguf_fleet.text import harmless

_DEFAULT_URL = "http://127.0.0.1:8000"
_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Raises UsageError instead of exiting, so that all errors look alike."""

    def error(self, message: str) -> None:  # type: ignore[override]
        sentence = f"{message[:1].upper()}{message[1:].rstrip('.')}."
        raise UsageError(sentence, hint=f"See `{self.prog} --help`.")


def main(words: Sequence[str]) -> int:
    """Run `worker fleet` with these words behind it; the exit code."""
    try:
        arguments = _parser().parse_args(words)
        return importlib.import_module(f"gguf_fleet.cli.{arguments.part}").run(arguments)
    except FleetError as error:
        sys.stderr.write(f"error: {error.code}: {harmless(str(error))}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="worker fleet",
        description="Serve several models, or several replicas of one, behind one endpoint. Ray "
        "Serve places the workers and keeps them alive.",
        epilog="Example: worker fleet serve fleet.toml",
        allow_abbrev=False,
    )
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
    plan = parts.add_parser(
        "plan",
        help="say what would run where, and whether it fits",
        description="CPUs and memory of each replica, and a place for each. Nothing is loaded, "
        "and without --address Ray is not started. Exits with 4 when it does not fit.",
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
    status.add_argument("--api-key", metavar="KEY", help="a key of the fleet (or LLAMA_API_KEY)")
    status.add_argument("--api-key-file", metavar="FILE", help="a file that begins with one")
    status.add_argument("--json", action="store_true", help="machine-readable output")
    return parser


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE",
        help="fleet.toml (default: two workers of the demo model)",
    )  # fmt: skip
    parser.add_argument(
        "--address", metavar="HOST:PORT",
        help="join the Ray cluster whose head is there (default: this machine alone)",
    )  # fmt: skip
