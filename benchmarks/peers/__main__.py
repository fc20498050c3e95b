"""`python -m benchmarks.peers [--cases ...] [--peers ...] [--rounds N] [--model FILE]`."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.models import write_model
from benchmarks.peers import report
from benchmarks.peers.cases import CASES, Case, Sample
from benchmarks.peers.neighbours import ForeignLoad
from benchmarks.peers.processes import PeerError
from benchmarks.peers.prompts import Prompts
from benchmarks.peers.report import Results
from benchmarks.peers.servers import PEERS, Peer, Setup
from benchmarks.shapes import SHAPES
from worker import machine
from worker.bench.measure.machine import cpu_name

ROOT = Path(__file__).resolve().parent.parent.parent
SHAPE, QUANT = "llama-1b", "Q4_K_M"
SLOTS = 8
# Each slot's share must hold the long prompt and what follows it.
CELLS = SLOTS * 2048
MOST_FOREIGN_CPUS = 0.1


def main() -> None:
    """Measure and print."""
    given = _arguments()
    model = given.model or _default_model()
    with tempfile.TemporaryDirectory(prefix="peers-") as logs:
        setup = Setup(
            model=model,
            threads=given.threads,
            cells=CELLS,
            slots=SLOTS,
            baseline=given.baseline,
            peers_python=given.peers_python,
            llama_server=given.llama_server,
            logs=Path(logs),
        )
        versions = _versions(setup, given.peers)
        peers = [PEERS[name] for name in versions]
        cases = [CASES[name] for name in given.cases]
        configuration: dict[str, object] = {
            "model": model.name,
            "model_bytes": model.stat().st_size,
            "threads": setup.threads,
            "cells": CELLS,
            "slots": SLOTS,
            "rounds": given.rounds,
            "cpu": cpu_name(),
            "cpus": machine.usable_cpus(),
            "python": platform.python_version(),
            "versions": versions,
        }
        results: Results = {case.name: {p.name: [] for p in peers} for case in cases}
        failures: list[str] = []
        with contextlib.suppress(KeyboardInterrupt):
            for number in range(given.rounds):
                for case in cases:
                    # Who comes first changes, so that a machine that warms up favours nobody.
                    for peer in peers[number % len(peers) :] + peers[: number % len(peers)]:
                        failures += _measure(case, peer, setup, number, given.retakes, results)
    console = Console(width=140)
    for name, samples in results.items():
        console.print(report.case_table(CASES[name], samples))
    console.print(report.goal_table(results))
    print(report.as_json(configuration | {"failures": failures}, results))


def _measure(
    case: Case, peer: Peer, setup: Setup, number: int, retakes: int, results: Results
) -> list[str]:
    """One sample into the results, or why there is none.

    A sample that others disturbed is taken again; the least disturbed one counts.
    """
    if (case.needs_http and not peer.is_http) or (case.needs_parallel and peer.is_serial):
        return []
    taken: list[Sample] = []
    label = f"round {number + 1}, {case.name}: {peer.name}"
    for attempt in range(1 + retakes):
        others = ForeignLoad()
        try:
            with contextlib.ExitStack() as stack:
                running = [stack.enter_context(peer.start(setup)) for _ in range(case.processes)]
                sample = case.measure(running, Prompts(case.name, number, attempt))
        except PeerError as error:
            _say(f"{label} {error}")
            return [f"{label} {error}"]
        foreign = others.cpus() or 0.0
        taken.append(sample | {"foreign_cpus": foreign})
        disturbed = foreign > MOST_FOREIGN_CPUS
        note = f", others used {foreign:.2f} CPUs" if disturbed else ""
        _say(f"{label} {sample['value']:.3g} {case.unit}{note}")
        if not disturbed:
            break
    results[case.name][peer.name].append(min(taken, key=lambda sample: sample["foreign_cpus"]))
    return []


def _versions(setup: Setup, names: Sequence[str]) -> dict[str, str]:
    """The peers that are there, with their versions."""
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = PEERS[name].version(setup)
        except PeerError as error:
            _say(f"left out: {name} {error}")
    return found


def _default_model() -> Path:
    """The benchmark's model, written once into a folder that git ignores."""
    path = ROOT / ".benchmarks" / f"{SHAPE}-{QUANT}.gguf"
    if not path.exists():
        _say(f"writing {path.name}")
        path.parent.mkdir(exist_ok=True)
        unfinished = write_model(path.with_suffix(".unfinished"), SHAPES[SHAPE], QUANT)
        unfinished.replace(path)
    return path


def _arguments() -> argparse.Namespace:
    binary = os.environ.get("LLAMA_SERVER")
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description="Us beside our peers.")
    parser.add_argument("--cases", type=_names(CASES), default=list(CASES), metavar="A,B")
    parser.add_argument("--peers", type=_names(PEERS), default=list(PEERS), metavar="A,B")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--retakes", type=int, default=2, help="of a disturbed sample, at most")
    parser.add_argument("--model", type=Path, help=f"default: {SHAPE} {QUANT}, random weights")
    parser.add_argument("--threads", type=int, default=machine.usable_cpus())
    parser.add_argument(
        "--baseline", type=Path, metavar="DIR",
        help="another checkout with its own .venv, measured as the peer `before`",
    )  # fmt: skip
    parser.add_argument(
        "--peers-python", type=Path, default=ROOT / ".venv-peers" / "bin" / "python"
    )
    parser.add_argument(
        "--llama-server", type=Path, default=Path(binary) if binary else None,
        help="the native binary (default: what LLAMA_SERVER names)",
    )  # fmt: skip
    return parser.parse_args()


def _names(known: Collection[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return read


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
