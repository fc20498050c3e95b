"""Entry point: finds the command, runs it, turns errors into exit codes."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from worker import __version__, log
from worker.errors import UsageError, WorkerError, out_of_memory
from worker.lifecycle.leave import leave

# Command -> its help in one line. Its module in this package is imported when it is asked for:
# a service should not wait for what the other commands import. It has DESCRIPTION and EXAMPLE for
# the help, `add_arguments` and `run`, which returns the exit code.
COMMANDS = {
    "serve": "serve a model to OpenAI clients",
    "generate": "continue a text in the terminal",
    "embed": "write the vectors of a text's lines",
    "pull": "bring models from the Hub to this machine",
    "show": "show what a model file says about itself",
    "check": "say whether model files are good, and where they are not",
    "plan": "say how much memory a model needs, and what context fits",
    "bench": "measure quant levels on this machine, and say which one to take",
    "quantize": "write a model in another encoding",
    "calibrate": "measure which attention is faster on this CPU",
    "top": "watch what a running worker does",
    "fleet": "serve several models or replicas behind one endpoint, on one machine or many",
    "version": "say what is installed and which backends it has",
}
# Entry points of commands that come with other distributions: functions of the words behind the
# command's name, which return the exit code.
_COMMANDS = "worker.commands"
_INTERRUPTED = 130
_FREE_ROOM = "Free some room where the output goes, and start again."
_LOOK_AT_RIGHTS = "Look at its rights and at its folder's, or name another."
_ANOTHER_PLACE = "Look at that file system, or name a place on another one."
_NEXT_STEPS = {
    errno.ENOSPC: _FREE_ROOM,
    errno.EDQUOT: _FREE_ROOM,
    errno.EACCES: _LOOK_AT_RIGHTS,
    errno.EPERM: _LOOK_AT_RIGHTS,
    errno.EROFS: _LOOK_AT_RIGHTS,
}


class _Parser(argparse.ArgumentParser):
    """Raises UsageError instead of exiting, so that all errors look alike."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(
            f"{message[:1].upper()}{message[1:].rstrip('.')}.", hint=f"See `{self.prog} --help`."
        )


def parser(*wanted: str) -> argparse.ArgumentParser:
    """The command line, with the options of the `wanted` commands."""
    top = _Parser(
        prog="worker",
        description="Run a quantised GGUF model on llama.cpp and serve it to OpenAI clients.",
        epilog="Example: worker serve --model tinyllama.Q4_K_M.gguf --port 8080",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"worker {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, line in COMMANDS.items():
        if name in wanted and name != "fleet":  # which has a parser of its own
            module = importlib.import_module(f"worker.cli.{name}")
            command = commands.add_parser(
                name, help=line, description=module.DESCRIPTION, epilog=module.EXAMPLE,
                allow_abbrev=False,
            )  # fmt: skip
            module.add_arguments(command)
            command.set_defaults(run=module.run)
        else:
            commands.add_parser(name, help=line)
    return top


def main(argv: Sequence[str], backend: str | None = None) -> int:
    """Run one command; returns the exit code. With `backend` it is `serve` on that backend."""
    words = list(argv)
    if backend is not None and words[:1] != ["--version"]:
        words = ["serve", "--backend", backend, *words]
    # Programs that start llama-server give options only: that means `serve`.
    elif words and words[0].startswith("-") and words[0] not in ("-h", "--help", "--version"):
        words.insert(0, "serve")
    log.configure("console")
    if not words:
        parser().print_help(sys.stderr)
    try:
        if words[:1] == ["fleet"]:
            return _run_fleet(words[1:])
        arguments = parse(words)
        if backend is not None and arguments.backend != backend:
            raise UsageError(f"This command is for --backend {backend} alone.")
        return arguments.run(arguments)
    except WorkerError as error:
        return _fail(error)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone. The text in the buffer must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001  (the last line must say what it was)
        return _fail(_foreign(error))


def _run_fleet(words: Sequence[str]) -> int:
    """Raises UsageError where it is not installed."""
    from importlib.metadata import entry_points

    for found in entry_points(group=_COMMANDS, name="fleet"):
        return found.load()(words)
    raise UsageError(
        "`worker fleet` is a distribution of its own, which is not installed.",
        hint="Install it beside the worker: `make install FLEET=1`, or `pip install ./fleet`.",
    )


def _foreign(error: Exception) -> WorkerError:
    """What is no error of ours, in our words."""
    if (exhausted := out_of_memory(error)) is not None:
        return exhausted
    if isinstance(error, OSError):
        place = f"{error.filename}: " if isinstance(error.filename, str) else ""
        return WorkerError(
            f"{place}{error.strerror or error}.",
            code="IO",
            hint=_NEXT_STEPS.get(error.errno or 0, _ANOTHER_PLACE),
        )
    log.get("cli").error("unforeseen", exc_info=error)
    return WorkerError(f"This should not happen: {error!r}.")


def parse(words: list[str]) -> argparse.Namespace:
    """The arguments. An unknown option is named without its value, which may be a secret.

    As in llama-server `_` in an option's name is `-`.
    """
    words = [_dashed(word) for word in words]
    # No option in front of the command takes a value, so the first word that is none names it.
    command = next((word for word in words if not word.startswith("-")), "")
    arguments, unknown = parser(command).parse_known_args(words)
    if unknown:
        flags = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        see = f"See `worker {arguments.command} --help`."
        if flags:
            raise UsageError(f"Unknown option {flags[0]}.", hint=see)
        if "model" in arguments:
            see = f"A model is named by --model FILE. {see}"
        raise UsageError("There is an argument too many.", hint=see)
    return arguments


def _dashed(word: str) -> str:
    name, given, value = word.partition("=")
    return f"{name.replace('_', '-')}{given}{value}" if name.startswith("--") else word


def _fail(error: WorkerError) -> int:
    log.say(f"error: {error.code}: {log.harmless(str(error))}\n")
    return error.exit_code


def run_cpu() -> None:
    """The `worker-cpu` command."""
    run("cpu")


def run_cuda() -> None:
    """The `worker-cuda` command."""
    run("cuda")


def run_metal() -> None:
    """The `worker-metal` command."""
    run("metal")


def run_vulkan() -> None:
    """The `worker-vulkan` command."""
    run("vulkan")


def run(backend: str | None = None) -> None:
    """The `worker` command; with `backend` a command that only runs on that backend."""
    _open_standard_streams()
    leave(main(sys.argv[1:], backend))


def _open_standard_streams() -> None:
    """Open standard streams that were closed, to nowhere: else the next file that is opened would
    become one of them.

    A character that the locale's encoding does not have is written as `?` instead of raising.
    """
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    stdout: Any = sys.stdout
    stdout.reconfigure(errors="replace")
