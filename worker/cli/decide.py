"""worker decide: typed questions about a text, answered with probabilities."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from worker.cli import serve
from worker.cli.console import data_console, plain, write_json
from worker.errors import UsageError

if TYPE_CHECKING:
    from worker.cli.decision_client import DecidedQuestions

DESCRIPTION = (
    "Ask typed questions about a text: whether a statement is true, which of several options "
    "fits, which level of a scale it has. Prints the probability of each answer."
)
EXAMPLE = (
    'Examples: worker decide "The lift is stuck." --predicate "Something is broken." my.gguf; '
    "worker decide - --choice lifts,heating,plumbing --question 'Who repairs it?' "
    "--url http://gpu7:8080 < note.txt. All options of `worker serve` work here too."
)
_BAR = 30  # characters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("state", help="the text to judge; - reads it from standard input")
    serve.add_arguments(parser)
    parser.usage = "%(prog)s STATE [--predicate TEXT] [--choice A,B] [--score A,B] [MODEL]"
    _add_own(parser)


def _add_own(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Decisions")
    add = group.add_argument
    add("--predicate", metavar="TEXT", help="a statement: is it true?")
    add("--choice", action="append", metavar="A,B",
        help="options to choose from; repeat it for options with commas")  # fmt: skip
    add("--score", action="append", metavar="A,B",
        help="levels of a scale, the lowest first; repeat it for levels with commas")  # fmt: skip
    add("--question", metavar="TEXT", help="what is asked with --choice or --score")
    add("--json", action="store_true", help="the worker's answer as JSON")
    add("--url", metavar="URL", help="ask the worker at this address instead of starting one")


def run(arguments: argparse.Namespace) -> int:
    """Print the answers. Raises UsageError, WorkerError."""
    questions = _questions(arguments)
    state = _state(arguments.state)
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    _add_own(own)
    _, words = own.parse_known_args(arguments.words)
    words.remove(arguments.state)
    from worker.cli.decision_client import ask
    from worker.cli.own_worker import worker_to_ask

    with worker_to_ask(arguments, words) as address:
        reply, found = ask(address, state, questions)
    if arguments.json:
        write_json(reply)
    else:
        _show(found, questions)
    return 0


def _state(text: str) -> str:
    """The text, or with "-" that of standard input. UsageError if it is empty or not UTF-8."""
    try:
        found = (sys.stdin.buffer.read() if text == "-" else os.fsencode(text)).decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The text is not UTF-8 at byte {error.start}.", hint="Convert it with iconv."
        ) from None
    if not found.strip():
        raise UsageError("There is no text to judge.", hint="Write it, or - and pipe it in.")
    return found


def _questions(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """As /v1/systemone takes them. Raises UsageError."""
    found: dict[str, dict[str, Any]] = {}
    asked = {} if arguments.question is None else {"instructions": arguments.question}
    if arguments.predicate is not None:
        found["predicate"] = {"type": "noul", "instructions": arguments.predicate}
    if arguments.choice:
        names = _names(arguments.choice, "--choice")
        found["choice"] = {"type": "choice", **asked, "criteria": dict.fromkeys(names)}
    if arguments.score:
        levels = _names(arguments.score, "--score")
        found["score"] = {"type": "score", **asked, "criteria": levels}
    if not found:
        raise UsageError(
            "Nothing is asked.", hint="Add --predicate TEXT, --choice A,B or --score LOW,HIGH."
        )
    if asked and set(found) == {"predicate"}:
        raise UsageError(
            "--question belongs to --choice or --score.", hint="Write it into --predicate."
        )
    return found


def _names(given: list[str], option: str) -> list[str]:
    """Options behind commas, or one each time that it was given."""
    parts = given[0].split(",") if len(given) == 1 else given
    names = [part.strip() for part in parts if part.strip()]
    if len(names) < 2 or len(set(names)) < len(names):
        raise UsageError(
            f"{option} needs at least two different options.", hint=f"Write {option} yes,no."
        )
    return names


def _show(reply: DecidedQuestions, questions: dict[str, dict[str, Any]]) -> None:
    """A bar for each option, and how the question was read."""
    console = data_console()
    for name, answer in reply.answers.items():
        title = questions[name].get("instructions") or name
        heading = plain(title)
        heading.stylize("bold")
        console.print(heading)
        rows = answer.rows
        widest = max(len(label) for label, _ in rows)
        best = max(share for _, share in rows)
        for label, share in rows:
            bar = "█" * round(share * _BAR)
            line = plain(f"  {label:<{widest}}  {share:7.2%}  {bar}")
            if share == best:
                line.stylize("green")
            console.print(line, soft_wrap=True)
        note = plain(f"  {answer.note}")
        note.stylize("dim")
        console.print(note, soft_wrap=True)
