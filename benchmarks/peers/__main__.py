"""`python -m benchmarks.peers [--cases ...] [--peers ...] [--rounds N] [--together]`."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console

from benchmarks.drafts import GAINS, write_pair
from benchmarks.models import write_model
from benchmarks.peers import report
from benchmarks.peers.cases.case import Case, Sample
from benchmarks.peers.cases.catalog import CASES
from benchmarks.peers.endpoints import Endpoint, HttpPeer
from benchmarks.peers.goals import Results
from benchmarks.peers.neighbours import ForeignLoad
from benchmarks.peers.processes import PeerError
from benchmarks.peers.prompts import Prompts
from benchmarks.peers.servers import PEERS, Peer, Setup
from benchmarks.peers.use import alike, use
from benchmarks.session.model import AGENTS, write_reciting
from benchmarks.session.story import story
from benchmarks.shapes import SHAPES
from worker import machine
from worker.llama import library

ROOT = Path(__file__).resolve().parent.parent.parent
QUANT = "Q4_K_M"
MOST_FOREIGN_CPUS = 0.1


def main() -> None:
    """Measure and print."""
    given = _arguments()
    cases = [CASES[name] for name in given.cases]
    with tempfile.TemporaryDirectory(prefix="peers-") as logs:
        setups = {
            case.name: Setup(
                model=_model(case, given.model),
                threads=given.threads,
                cells=case.cells,
                slots=case.slots,
                baseline=given.baseline,
                peers_python=given.peers_python,
                llama_server=given.llama_server,
                llama_server_flags=tuple(given.llama_server_flags.split()),
                logs=Path(logs),
            )
            for case in cases
        }
        versions = _versions(setups[cases[0].name], given.peers)
        peers = [PEERS[name] for name in versions]
        configuration: dict[str, object] = {
            "threads": given.threads,
            "rounds": given.rounds,
            "cpu": machine.cpu()[0],
            "cpus": machine.usable_cpus(),
            "features": library.proof().verdict().features,
            "python": platform.python_version(),
            "versions": versions,
            "cases": {case.name: _terms(case, setups[case.name]) for case in cases},
        }
        results: Results = {case.name: {p.name: [] for p in peers} for case in cases}
        failures: list[str] = []
        with contextlib.suppress(KeyboardInterrupt):
            if given.together:
                for near in alike(cases, setups):
                    with _running(near[0], peers, setups[near[0].name], given.used) as started:
                        for case in near:
                            for number in range(given.rounds):
                                failures += _round(case, started, setups, number, given, results)
            else:
                for number in range(given.rounds):
                    for case in cases:
                        failures += _round(case, peers, setups, number, given, results)
    console = Console(width=140)
    for name, samples in results.items():
        console.print(report.case_table(CASES[name], samples))
    console.print(report.goal_table(results))
    print(report.as_json(configuration | {"failures": failures}, results))


@contextlib.contextmanager
def _running(case: Case, peers: Sequence[Peer], setup: Setup, used: float) -> Generator[list[Peer]]:
    """The same peers, each of which runs once for all rounds. PeerError where one does not start.

    Samples of one round are then seconds apart, in which a shared machine changes less than while
    servers start; and the servers are no longer fresh.

    used: minutes in which people talk to all of them before
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=setup.logs))
        started: list[Peer] = []
        endpoints: list[HttpPeer] = []
        for peer in peers:
            if _is_measured(case, peer):
                endpoint = stack.enter_context(peer.start(_with_options(case, setup, folder)))
                started.append(replace(peer, start=_as_it_runs(endpoint)))
                endpoints += [endpoint] if isinstance(endpoint, HttpPeer) else []
        if used:
            use(endpoints, case, used)
        yield started


def _as_it_runs(endpoint: Endpoint) -> Callable[[Setup], AbstractContextManager[Endpoint]]:
    return lambda _: contextlib.nullcontext(endpoint)


def _round(
    case: Case,
    peers: list[Peer],
    setups: dict[str, Setup],
    number: int,
    given: argparse.Namespace,
    results: Results,
) -> list[str]:
    """One sample of each peer; returns what failed."""
    failures: list[str] = []
    # Who comes first changes, so that a machine that warms up favours nobody.
    for peer in peers[number % len(peers) :] + peers[: number % len(peers)]:
        if _is_measured(case, peer):
            failures += _measure(case, peer, setups[case.name], number, given, results)
    return failures


def _is_measured(case: Case, peer: Peer) -> bool:
    if (case.needs_http and not peer.is_http) or (case.needs_parallel and peer.is_serial):
        return False
    return case.has_drafts or not peer.is_for_drafts


def _with_options(case: Case, setup: Setup, folder: str) -> Setup:
    options = {
        name: value.format(folder=folder, draft=_draft_of(setup.model))
        for name, value in case.worker_options.items()
    }
    return replace(setup, worker_options=options)


def _measure(
    case: Case, peer: Peer, setup: Setup, number: int, given: argparse.Namespace, results: Results
) -> list[str]:
    """One sample into the results, or why there is none.

    A sample that others disturbed is taken again; the least disturbed one counts. Of servers that
    go on it is not known what they used, and so not what others did.
    """
    taken: list[tuple[float, Sample]] = []
    label = f"round {number + 1}, {case.name}: {peer.name}"
    for attempt in range(1 if given.together else 1 + given.retakes):
        others = ForeignLoad()
        try:
            with tempfile.TemporaryDirectory(dir=setup.logs) as folder:
                start = partial(peer.start, _with_options(case, setup, folder))
                sample = case.measure(start, Prompts(case.name, number, attempt))
        except PeerError as error:
            _say(f"{label} {error}")
            return [f"{label} {error}"]
        foreign = 0.0 if given.together else others.cpus() or 0.0
        if not given.together:
            sample["foreign_cpus"] = foreign
        taken.append((foreign, sample))
        disturbed = foreign > MOST_FOREIGN_CPUS
        note = f", others used {foreign:.2f} CPUs" if disturbed else ""
        _say(f"{label} {sample['value']:.3g} {case.unit}{note}")
        if not disturbed:
            break
    results[case.name][peer.name].append(min(taken, key=lambda one: one[0])[1])
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


def _terms(case: Case, setup: Setup) -> dict[str, object]:
    """What a case is measured with."""
    return {
        "model": setup.model.name,
        "model_bytes": setup.model.stat().st_size,
        "cells": case.cells,
        "slots": case.slots,
        "worker_options": case.worker_options,
    }


def _model(case: Case, named: Path | None) -> Path:
    """The model that the user named, or one of the case's shape.

    That is written once into a folder that git ignores.
    """
    if named and not case.is_shape_fixed:
        return named
    kind = "pair-" if case.has_draft_model else ""
    path = ROOT / ".benchmarks" / f"{case.shape}-{kind}{QUANT}.gguf"
    if not path.exists() and case.has_draft_model:
        _say(f"writing {path.name} and what guesses for it")
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        shape, gain = SHAPES[case.shape], GAINS[case.shape]
        write_pair(unfinished, _draft_of(path), shape, QUANT, gain)
        unfinished.replace(path)
    elif not path.exists() and case.is_reciting:
        _say(f"writing {path.name}")
        path.parent.mkdir(exist_ok=True)
        stories = [story(agent) for agent in range(AGENTS)]
        write_reciting(path.with_suffix(".unfinished"), stories).replace(path)
    elif not path.exists():
        _say(f"writing {path.name}")
        path.parent.mkdir(exist_ok=True)
        unfinished = write_model(path.with_suffix(".unfinished"), SHAPES[case.shape], QUANT)
        unfinished.replace(path)
    return path


def _draft_of(model: Path) -> Path:
    """Where the model is that guesses what this one writes."""
    return model.with_name(f"{model.stem}-draft.gguf")


def _arguments() -> argparse.Namespace:
    binary = os.environ.get("LLAMA_SERVER")
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description="Us beside our peers.")
    usual = [name for name, case in CASES.items() if not case.needs_model]
    parser.add_argument("--cases", type=_names(CASES), default=usual, metavar="A,B")
    parser.add_argument("--peers", type=_names(PEERS), default=list(PEERS), metavar="A,B")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--together", action="store_true",
        help="start each peer once for all rounds of a case",
    )  # fmt: skip
    parser.add_argument(
        "--used", type=float, default=0, metavar="MINUTES",
        help="with --together: people talk to all of them before, so long",
    )  # fmt: skip
    parser.add_argument("--retakes", type=int, default=2, help="of a disturbed sample, at most")
    parser.add_argument("--model", type=Path, help=f"default: the case's shape, {QUANT}")
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
    parser.add_argument(
        "--llama-server-flags", default="--spec-default --cache-reuse 256", metavar="TEXT",
        help="what the peer `flagged` is started with besides (default: %(default)s)",
    )  # fmt: skip
    given = parser.parse_args()
    several = [name for name in given.cases if CASES[name].has_several_servers]
    if given.model is None and any(CASES[name].needs_model for name in given.cases):
        parser.error("--cases edits… and prose… need --model")
    if given.used and not given.together:
        parser.error("--used needs --together")
    if given.together and several:
        parser.error(f"--together: {several[0]} starts its own servers; choose --cases without it")
    return given


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
