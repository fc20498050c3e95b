"""A coding agent's session against a server: `python -m benchmarks.session --url URL`."""

from __future__ import annotations

import argparse

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.peers.processes import PeerError
from benchmarks.session.model import AGENTS
from benchmarks.session.replay import SessionFigures, replay
from benchmarks.session.story import TURNS, story


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.session", description=__doc__)
    parser.add_argument("--url", required=True, help="such as http://127.0.0.1:8080/v1")
    parser.add_argument("--agents", type=int, choices=range(1, AGENTS + 1), default=1)
    parser.add_argument("--turns", type=int, choices=range(1, TURNS + 1), default=TURNS)
    parser.add_argument("--model", default="", help="the name to ask for")
    parser.add_argument(
        "--recited", action="store_true",
        help="the model is `benchmarks.session.model`'s: what it says must be what is prescribed",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="all figures as one line")
    given = parser.parse_args()
    stories = [story(agent, given.turns) for agent in range(given.agents)]
    try:
        found = replay(given.url, stories, recited=given.recited, model=given.model)
    except PeerError as error:
        raise SystemExit(f"The server {error}.") from None
    if given.json:
        totals = {"totals": found.totals()}
        print(msgspec.json.encode(msgspec.to_builtins(found) | totals).decode())
    else:
        _print(found)


def _print(found: SessionFigures) -> None:
    table = Table("request", "first token, s", "seconds", "computed", "cached", "written", "taken")
    for agent in found.agents:
        for number, one in enumerate(agent, 1):
            times = (f"{one.ttft:.2f}", f"{one.seconds:.2f}")
            counts = map(str, (one.computed, one.cached, one.written, one.taken))
            table.add_row(f"{number} {one.kind}", *times, *counts)
        table.add_section()
    console = Console(width=100)
    console.print(table)
    console.print(", ".join(f"{name} {value:.4g}" for name, value in found.totals().items()))


if __name__ == "__main__":
    main()
