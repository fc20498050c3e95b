"""worker decide: typed questions about a text, answered with probabilities."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from worker.cli.arguments.decide import add_own
from worker.cli.console import data_console, plain, write_json
from worker.cli.decision_client import DecidedQuestions, ask
from worker.cli.own_worker import server_words, worker_to_ask
from worker.cli.utf8 import utf8_text
from worker.errors import UsageError

_BAR = 30  # characters


def run(arguments: argparse.Namespace) -> int:
    """Print the answers. Raises UsageError, WorkerError."""
    questions = _questions(arguments)
    state = _state(arguments.state)
    words = server_words(arguments, add_own, arguments.state)

    with worker_to_ask(arguments, words) as address:
        reply, found = ask(address, state, questions)
    if arguments.json:
        write_json(reply)
    else:
        _show(found, questions)
    return 0


def _state(text: str) -> str:
    """The text, or with "-" that of standard input. UsageError if it is empty or not UTF-8."""
    found = utf8_text(sys.stdin.buffer.read() if text == "-" else text, "text")
    if not found.strip():
        raise UsageError("There is no text to judge.", hint="Write it, or - and pipe it in.")
    return found


def _questions(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """As /v1/systemone takes them. Raises UsageError."""
    found: dict[str, dict[str, Any]] = {}
    asked = {}
    if arguments.question is not None:
        asked["instructions"] = utf8_text(arguments.question, "text of --question")
    if arguments.predicate is not None:
        predicate = utf8_text(arguments.predicate, "text of --predicate")
        found["predicate"] = {"type": "noul", "instructions": predicate}
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
    names = [utf8_text(part, f"text of {option}").strip() for part in parts if part.strip()]
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
