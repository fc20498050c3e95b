"""Arguments of `worker decide`."""

from __future__ import annotations

import argparse

from worker.cli.arguments import serve

DESCRIPTION = (
    "Ask typed questions about a text: whether a statement is true, which of several options "
    "fits, which level of a scale it has. Prints the probability of each answer."
)
EXAMPLE = """Examples:
  worker decide "The lift is stuck." --predicate "Something is broken." my.gguf
  worker decide - --choice lifts,heating --question "Who repairs it?" < note.txt

All options of `worker serve` work here too.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "state", metavar="STATE", help="the text to judge; - reads it from standard input"
    )
    add_own(parser)
    serve.add_arguments(parser)
    parser.usage = "%(prog)s STATE [MODEL] [--predicate TEXT] [--choice A,B] [options]"


def add_own(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Questions")
    add = group.add_argument
    add("--predicate", metavar="TEXT", help="a statement: is it true?")
    add("--choice", action="append", metavar="A,B",
        help="options to choose from; repeat it for options with commas")  # fmt: skip
    add("--score", action="append", metavar="A,B",
        help="levels of a scale, the lowest first; repeat it for levels with commas")  # fmt: skip
    add("--question", metavar="TEXT", help="what is asked with --choice or --score")
    add("--json", action="store_true", help="the worker's answer as JSON")
    add("--url", metavar="URL", help="ask the worker at this address instead of starting one")
