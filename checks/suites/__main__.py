"""`make check SUITE=suites`: other projects' suites over our worker, and a table of what is lost.

The sources come from the package index, once, into the cache folder. Exit code 1: a case is lost
that `accepted.toml` has no reason for.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from checks.suites.outcome import Outcome
from worker.cli.console import data_console, plain

SUITES = ("llama-server", "openai", "anthropic", "vllm", "chat-cases", "rendering", "grammars")


def main() -> int:
    """Run them and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m checks.suites", description=__doc__,
        epilog="Example: python -m checks.suites llama-server --peer llama-server --jobs 2",
    )  # fmt: skip
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--peer", metavar="FILE", help="a llama-server that runs its own suite too")
    parser.add_argument("--jobs", type=int, default=2, help="servers, or tests, at once (2)")
    parser.add_argument("--only", nargs="*", default=[], metavar="TEST",
                        help="of llama-server's, such as unit/test_embedding.py")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each case there")
    asked = parser.parse_args()
    if unknown := set(asked.suites) - set(SUITES):
        parser.error(f"no suite is called {', '.join(sorted(unknown))}")
    found = [_run(name, asked) for name in asked.suites or SUITES]
    for each in found:
        _show(each)
    if asked.json:
        told = {each.suite: {"ours": each.found, "theirs": each.peer} for each in found}
        asked.json.write_text(json.dumps(told, indent=1))
    return int(any(each.lost() for each in found))


def _run(name: str, asked: argparse.Namespace) -> Outcome:
    if name == "llama-server":
        from checks.suites.llama_server import outcome_of

        ours = [sys.executable, "-P", "-m", "worker"]
        theirs = [asked.peer] if asked.peer else None
        return outcome_of(ours, theirs, asked.only, asked.jobs)
    if name in ("openai", "anthropic"):
        from checks.suites.sdk import outcome

        return outcome(name, asked.jobs)
    if name == "chat-cases":
        from checks.suites import chat_cases as suite
    elif name == "vllm":
        from checks.suites import vllm as suite
    elif name == "grammars":
        from checks.suites import grammars as suite
    else:
        from checks.suites import rendering as suite
    run: Callable[[], Outcome] = suite.outcome
    return run()


def _show(each: Outcome) -> None:
    """The counts, and below them what is accepted and what is lost."""
    from rich.table import Table

    console = data_console()
    table = Table("suite", "cases", "passed", "theirs", "accepted", "lost", box=None)
    accepted, lost = each.accepted(), each.lost()
    theirs = sum(said == "passed" for said in each.peer.values()) if each.peer else "–"
    table.add_row(
        each.suite, *map(str, (each.cases, each.passed, theirs, len(accepted), len(lost)))
    )
    console.print(table)
    reasons: dict[str, list[str]] = {}
    for case, reason in accepted.items():
        reasons.setdefault(reason, []).append(case)
    for reason, cases in reasons.items():
        shown = ", ".join(cases[:4]) + (f" and {len(cases) - 4} more" if len(cases) > 4 else "")
        console.print(plain(f"  {len(cases):3} {reason}: {shown}"))
    for case, said in lost.items():
        console.print(plain(f"  lost: {case}: {said}"))


if __name__ == "__main__":
    sys.exit(main())
