"""Entry point: finds the command, runs it, turns errors into exit codes. The only try."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

from worker import __version__, log
from worker.cli import generate, plan, serve, show, version
from worker.errors import UsageError, WorkerError

COMMANDS = (serve, generate, show, plan, version)
_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Raises UsageError instead of exiting, so that all errors look alike."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(
            f"{message[:1].upper()}{message[1:].rstrip('.')}.", hint=f"See `{self.prog} --help`."
        )


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = _Parser(
        prog="worker",
        description="Run a quantised GGUF model on llama.cpp and serve it to OpenAI clients.",
        epilog="Example: worker serve --model tinyllama.Q4_K_M.gguf --port 8080",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"worker {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return top


def main(argv: Sequence[str]) -> int:
    """Run one command; its exit code."""
    words = list(argv)
    # Callers of llama-server give options without a subcommand.
    if words and words[0].startswith("-") and words[0] not in ("-h", "--help", "--version"):
        words.insert(0, "serve")
    log.configure("console")
    try:
        arguments = parser().parse_args(words)
        return arguments.run(arguments)
    except WorkerError as error:
        return _fail(error)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left; what is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(WorkerError(f"{error.strerror or error}.", code="IO"))


def _fail(error: WorkerError) -> int:
    with contextlib.suppress(OSError):  # nobody may be left to read it
        sys.stderr.write(f"error: {error.code}: {error}\n")
    return error.exit_code


def run() -> None:
    """The `worker` command."""
    _open_standard_streams()
    code = main(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:  # what could not be written would fail once more at exit
        os._exit(code or 1)
    sys.exit(code)


def _open_standard_streams() -> None:
    """Standard streams that were closed lead nowhere, instead of to the next file opened."""
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
