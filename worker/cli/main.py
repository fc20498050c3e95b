"""Entry point: finds the command, runs it, turns errors into exit codes."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from worker import __version__, log
from worker.cli.foreign import with_presets
from worker.errors import UsageError, WorkerError, did_you_mean, out_of_memory
from worker.lifecycle.leave import leave
from worker.settings import OPTIONS

# Command -> its help in one line. Its module in `arguments` has DESCRIPTION and EXAMPLE for the
# help, and `add_arguments`; its module in this package has `run`, which returns the exit code.
# Each is imported when it is needed: nobody waits for what the others import.
COMMANDS = {
    "serve": "serve a model over HTTP",
    "chat": "chat with a model in the terminal",
    "run": "the same as chat",
    "generate": "generate one answer in the terminal",
    "decide": "answer typed questions about a text with probabilities",
    "embed": "embed the lines of a text",
    "batch": "answer the requests in a file",
    "pull": "download models from the Hub",
    "show": "show what a model file contains",
    "check": "check model files before you serve them",
    "plan": "show how much memory a model needs",
    "bench": "measure quant levels on this machine and recommend one",
    "quantize": "convert a model to another quant level, or to the best mix for a size",
    "imatrix": "compute an importance matrix to quantize with",
    "calibrate": "measure which attention kernel is faster on this CPU",
    "top": "watch a running worker",
    "fleet": "serve several models or replicas behind one endpoint",
    "completion": "print a completion script for your shell",
    "version": "show what is installed and which devices it sees",
}
# Another name of a command -> the command.
_SAME = {"run": "chat"}
# How argparse names the argument that an error is about, by all its flags.
_ARGUMENT = re.compile(r"argument ([^\s:]+): (.*)", re.DOTALL)
_FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
# A word that names a model and not a command: a file, NAME:QUANT or ORGANIZATION/REPOSITORY.
_MODEL = re.compile(r".*[/:].*|.*\.gguf", re.IGNORECASE | re.DOTALL)
# Entry points of commands that come with other distributions: functions of the words behind the
# command's name, which return the exit code.
_COMMANDS = "worker.commands"
_EXAMPLES = """Examples:
  worker serve my.gguf    serve a file
  worker chat my.gguf     chat with it
  worker serve --help     list the options of a command
"""
_INTERRUPTED = 130
_FREE_ROOM = "Free some room where the output goes, and start again."
_LOOK_AT_RIGHTS = "Look at its rights and at its folder's, or name another."
_ANOTHER_PLACE = "Look at that file system, or name a place on another one."
_NEXT_STEPS = {
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "Check the path.",
    errno.EISDIR: "Name a file.",
    errno.ENOSPC: _FREE_ROOM,
    errno.EDQUOT: _FREE_ROOM,
    errno.EACCES: _LOOK_AT_RIGHTS,
    errno.EPERM: _LOOK_AT_RIGHTS,
}


class _Help(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Paragraphs are filled. Lines that begin with spaces are to be copied: they stay."""
        found: list[str] = []
        for stays, group in groupby(text.splitlines(), lambda line: not line or line[0] == " "):
            lines = list(group)
            found += lines if stays else [super()._fill_text(" ".join(lines), width, indent)]
        return "\n".join(found)


class _Parser(argparse.ArgumentParser):
    """Raises UsageError instead of exiting, so that all errors look alike."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Errors name options as they were given."""
        self._given = [word.partition("=")[0] for word in args or ()]
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{_sentence(message, self._given)}.", hint=f"See `{self.prog} --help`.")


def _sentence(message: str, given: Sequence[str]) -> str:
    """An error of argparse's without its mark: `--port must be a whole number, not 'x'`."""
    named = _ARGUMENT.fullmatch(message)
    if named is None:
        return f"{message[:1].upper()}{message[1:].rstrip('.')}"
    names, what = named[1].split("/"), named[2].rstrip(".")
    name = next((each for each in names if each in given), names[0])
    if counted := re.fullmatch(r"expected (.+?) arguments?", what):
        plural = "" if counted[1].endswith("one") else "s"
        return f"{name} needs {counted[1].replace('one', 'a')} value{plural}"
    if other := re.fullmatch(r"not allowed with argument ([^/]+).*", what):
        return f"{name} and {other[1]} exclude each other"
    if chosen := re.fullmatch(r"invalid choice: (.*) \(choose from (.*)\)", what):
        return f"{name} must be one of {chosen[2].replace(chr(39), '')}, not {chosen[1]}"
    if what.startswith("ignored explicit argument"):
        return f"{name} takes no value"
    return f"{name} {what}"


def parser(*wanted: str) -> argparse.ArgumentParser:
    """The command line, with the options of the `wanted` commands."""
    top = _Parser(
        prog="worker",
        description="Serve a GGUF model over APIs compatible with OpenAI, Anthropic and Ollama.",
        epilog=_EXAMPLES,
        allow_abbrev=False,
        formatter_class=_Help,
    )
    top.add_argument("--version", action="version", version=f"worker {__version__}")
    # Its name is longer than those of all commands, so that their texts stand in one column.
    commands = top.add_subparsers(
        dest="command", title="commands", metavar="COMMAND [...]", prog=top.prog
    )
    top.usage = "%(prog)s COMMAND [options]"
    for name, line in COMMANDS.items():
        if name in wanted and name != "fleet":  # which has a parser of its own
            own = _SAME.get(name, name)
            module = importlib.import_module(f"worker.cli.arguments.{own}")
            command = commands.add_parser(
                name,
                help=line,
                description=module.DESCRIPTION,
                epilog=module.EXAMPLE,
                allow_abbrev=False,
                formatter_class=_Help,
            )
            module.add_arguments(command)
            command.set_defaults(run=partial(_run, own), help=command.format_help)
        else:
            commands.add_parser(name, help=line)
    return top


def main(argv: Sequence[str], backend: str | None = None) -> int:
    """Run one command; returns the exit code. With `backend` it is `serve` on that backend."""
    words = list(argv)
    if backend is not None and words[:1] != ["--version"]:
        words = ["serve", "--backend", backend, *words]
    elif words and _means_serve(words[0]):
        words.insert(0, "serve")
    asks_for_json = words[:1] == ["serve"] and _asks_for_json(words)
    log.configure("json" if asks_for_json else "console")
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
    except KeyboardInterrupt as error:  # with a code if it was another signal than Ctrl-C's
        return next(iter(error.args), _INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone. The text in the buffer must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001  (the last line must say what it was)
        return _fail(_foreign(error))


def _run(command: str, arguments: argparse.Namespace) -> int:
    return importlib.import_module(f"worker.cli.{command}").run(arguments)


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


def _asks_for_json(words: Sequence[str]) -> bool:
    """Whether errors of the command line itself are written as JSON too."""
    (option,) = (option for option in OPTIONS if option.flags[0] == "--log-format")
    given = [os.environ.get(name) for name in option.variables]
    for word, following in zip(words, [*words[1:], ""], strict=False):
        flag, _, value = _with_dashes(word).partition("=")
        if flag == option.flags[0]:
            given = [value or following]
        elif flag == "--log-jsonl":
            given = ["json"]
    return (next(filter(None, given), "") or "").lower() == "json"


def _means_serve(word: str) -> bool:
    """Whether the first word belongs to `serve`: programs that start llama-server give options
    only, and people name a model."""
    if word.startswith("-"):
        return word not in ("-h", "--help", "--version")
    return word not in COMMANDS and (_MODEL.fullmatch(word) is not None or Path(word).is_file())


def parse(words: list[str]) -> argparse.Namespace:
    """The arguments. An unknown option is named without its value, which may be a secret.

    As in llama-server `_` in an option's name is `-`.
    Raises UsageError.
    """
    words = with_presets([_with_dashes(word) for word in words])
    # No option in front of the command takes a value, so the first word that is none names it.
    command = next((word for word in words if not word.startswith("-")), "")
    if command and command not in COMMANDS:
        raise UsageError(
            f"There is no command {command!r}.",
            hint=f"{did_you_mean(command, COMMANDS)}`worker --help` lists the commands.",
        )
    arguments, unknown = parser(command).parse_known_args(_with_values(words))
    if [word[:1] == "-" for word in unknown] == [False] and getattr(arguments, "named", "") is None:
        # Behind options argparse takes no second word, so it left the model of `worker decide`.
        arguments.named, unknown = unknown[0], []
    if arguments.command is None:
        raise UsageError("No command is named.", hint="Try `worker serve my.gguf`.")
    if unknown:
        flags = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        see = f"See `worker {arguments.command} --help`."
        if flags:
            hint = did_you_mean(flags[0], _FLAG.findall(arguments.help()))
            raise UsageError(f"Unknown option {flags[0]}.", hint=f"{hint}{see}")
        raise UsageError("There is one argument too many.", hint=see)
    arguments.words = words[words.index(command) + 1 :] if command else []
    return arguments


def _with_values(words: Sequence[str]) -> list[str]:
    """With the value of a switch that stands in front of a model: `--mlock my.gguf`."""
    switches = {flag for option in OPTIONS if option.const is not None for flag in option.flags}
    return [
        f"{word}=on" if word in switches and _MODEL.fullmatch(following) else word
        for word, following in zip(words, [*words[1:], ""], strict=False)
    ]


def _with_dashes(word: str) -> str:
    name, given, value = word.partition("=")
    return f"{name.replace('_', '-')}{given}{value}" if name.startswith("--") else word


def _fail(error: WorkerError) -> int:
    log.fail(error.code, str(error))
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
