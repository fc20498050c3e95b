"""argparse arguments, made from the table of options in `options.py`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from worker.options import OPTIONS, TOPICS, Option
from worker.settings import Settings, make


def add_options(parser: argparse.ArgumentParser, *fields: str) -> None:
    """Add the options of the named fields, or all options where none is named, by topic."""
    for topic, options in TOPICS.items():
        wanted = [option for option in options if not fields or option.field in fields]
        if wanted:
            group = parser.add_argument_group(topic)
            for option in wanted:
                _add(group, option)


def _add(group: Any, option: Option) -> None:
    extra: dict[str, Any] = {}
    if option.const is not None:
        extra = {"nargs": "?", "const": option.const}
    if option.repeats:
        extra["action"] = "extend"
    metavar: Any = option.metavar
    if " " in metavar:
        metavar = tuple(metavar.split())
        extra |= {"nargs": len(metavar), "action": _Together}
        extra["const"] = option.read
    group.add_argument(
        *option.flags,
        dest=option.field,
        type=reader(option.read) if metavar == option.metavar else str,
        metavar=metavar,
        help=option.help.replace("%", "%%"),
        **extra,
    )


class _Together(argparse.Action):
    """Reads several words, with spaces between them, by its `const`."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,  # noqa: ARG002
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:  # fmt: skip
        try:
            setattr(namespace, self.dest, self.const(" ".join(values)))
        except ValueError as error:
            raise argparse.ArgumentError(self, str(error)) from None


def reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """The same as an argument's type: argparse hides the text of a ValueError."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def settings_from(arguments: argparse.Namespace) -> Settings:
    """The settings: the command line counts first, then the environment, then defaults."""
    return make(vars(arguments))


def environment_help() -> str:
    """One paragraph of help on the environment variables."""
    extra = [name for option in OPTIONS for name in option.variables[1:]]
    return (
        "Each option can also be set as LLAMA_ARG_<NAME> in the environment, for example "
        f"LLAMA_ARG_CTX_SIZE=4096 (also: {', '.join(extra)}). The command line wins."
    )
