"""What copies of text save: `python -m benchmarks.copies MODEL... --llama-server FILE`.

Twelve edits, calls of tools and prose of one stream, then prose of eight, by each way:

auto, ngram, none  the worker with this --draft
spec-default       llama-server with the flags that --llama-server-flags names
model, spec-model  worker and llama-server with the draft model that --draft-model names, which
                   `auto` has too then
before             the worker of the checkout that --baseline names, as `auto`

All servers stay, have had one request that does not count, and take turns request by request, in
an order that changes; `none`, `ngram` and `model` get the first --few of each kind. For each kind
of request and way: tokens written, steps, rows that were verified and of these accepted, seconds of
the clock and of the server's CPU time. Then the quotients of seconds for each token, way / auto: of
the sums, and the least and the greatest of single requests. Above 1 `auto` is faster. A server may
count the first token of an answer as a step or not, so all count one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx

from benchmarks.adapters import wait
from benchmarks.edits import CopyAsk, calls, edits, prose
from benchmarks.embeddings import SETTLED_S, VectorServer, cpu_s
from benchmarks.peers.endpoints import HOST
from benchmarks.peers.processes import free_port, started

_LIMIT_S = 600.0
_CELLS, _SLOTS = 16_384, 8
_FLAGS = "--spec-default --cache-reuse 256"
_WAYS = ("auto", "none", "spec-default", "ngram", "model", "spec-model", "before")
_WORKER = ["-m", "worker", "serve", "--draft"]


class Taken(NamedTuple):
    """What one request took, or several together: `guessed` rows were verified, `right` of them
    accepted; `cpu` seconds are the server's."""

    tokens: int
    guessed: int
    right: int
    wall: float
    cpu: float

    @property
    def steps(self) -> int:
        return self.tokens - self.right


def total(several: Iterable[Taken]) -> Taken:
    """Of all together."""
    tokens, guessed, right, wall, cpu = zip(*several, strict=True)
    return Taken(sum(tokens), sum(guessed), sum(right), sum(wall), sum(cpu))


class TakenPair(NamedTuple):
    """What a way took, and what `auto` took of the same request."""

    taken: Taken
    ours: Taken


# Kind of request -> way -> what its requests took.
ByKind = dict[str, dict[str, list[TakenPair]]]
# These get all requests.
PEERS = ("auto", "spec-default", "spec-model", "before")


def ask(server: VectorServer, asked: Sequence[CopyAsk]) -> Taken:
    """All at once."""

    def one(each: CopyAsk) -> dict[str, int]:
        body = {"prompt": each.prompt, "n_predict": each.most, **each.fields}
        answer = httpx.post(f"{server.url}/completion", json=body, timeout=_LIMIT_S)
        return answer.raise_for_status().json()["timings"]

    used, began = cpu_s(server.pid), time.monotonic()
    with ThreadPoolExecutor(len(asked)) as pool:
        found = list(pool.map(one, asked))
    wall, used = time.monotonic() - began, cpu_s(server.pid) - used
    names = ("predicted_n", "draft_n", "draft_n_accepted")
    tokens, guessed, right = (sum(each.get(name, 0) for each in found) for name in names)
    return Taken(tokens, guessed, right, wall, used)


def lists(names: Sequence[str], most: int) -> Iterator[list[CopyAsk]]:
    """What is asked: one request, or several at once; at most so many of each kind."""
    for name, made in (("edits", edits), ("calls", calls), ("prose", prose)):
        count = Counter[str]()
        for each in made() if name in names else ():
            count[each.kind] += 1
            if count[each.kind] <= most:
                yield [each]
    if "prose8" in names:
        yield [each._replace(kind="prose8") for each in prose()]


def measure(
    servers: dict[str, VectorServer], asked: Sequence[list[CopyAsk]], few: int, *, each: bool
) -> ByKind:
    """Ask all. few: requests of each kind for ways that are no peers; each: print each request's
    counts"""
    found: ByKind = {}
    for number, several in enumerate(asked):
        name = several[0].kind
        kind = found.setdefault(name, {way: [] for way in servers})
        ways = [way for way in servers if way in PEERS or len(kind[way]) < few]
        first = number % len(ways)
        taken = {way: ask(servers[way], several) for way in (*ways[first:], *ways[:first])}
        for way in ways:
            kind[way].append(TakenPair(taken[way], taken[ways[0]]))
            if each:
                print(f"  {number + 1:3} {_row(name, way, taken[way])}", flush=True)
    return found


def table(found: ByKind) -> Iterator[str]:
    """The counts, and the quotients."""
    edited = [found[kind] for kind in ("edit", "another", "again") if kind in found]
    if edited:
        together = {way: [p for kind in edited for p in kind[way]] for way in edited[0]}
        found = found | {"all edits": together}
    yield _HEAD
    for kind, by_way in found.items():
        for way, pairs in by_way.items():
            sums, ours = total(pair.taken for pair in pairs), total(pair.ours for pair in pairs)
            wall, cpu = _quotient(sums, ours)
            low, high = (f(_quotient(*pair)[0] for pair in pairs) for f in (min, max))
            yield f"{_row(kind, way, sums)} {wall:7.3f} ({low:.2f} to {high:.2f}) {cpu:7.3f}"


_HEAD = (
    "kind      way          tokens steps verified accepted  seconds      CPU"
    "  way / auto: seconds, CPU"
)


def _row(kind: str, way: str, taken: Taken) -> str:
    counts = f"{taken.tokens:6} {taken.steps:5} {taken.guessed:8} {taken.right:8}"
    return f"{kind:9} {way:12} {counts} {taken.wall:8.2f} {taken.cpu:8.2f}"


def _quotient(one: Taken, ours: Taken) -> tuple[float, float]:
    """Seconds and CPU seconds for a token, one's to ours."""
    tokens = one.tokens / max(1, ours.tokens)
    return one.wall / ours.wall / tokens, one.cpu / max(ours.cpu, 0.01) / tokens


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print, model by model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--llama-server")
    parser.add_argument("--llama-server-flags", default=_FLAGS)
    parser.add_argument("--baseline", type=Path, help="another checkout with its own .venv")
    parser.add_argument("--draft-model", type=Path, help="see benchmarks.pruned")
    parser.add_argument("--spec-type", default="draft-simple", help="of it, for llama-server")
    parser.add_argument("--ways", default=",".join(_WAYS))
    parser.add_argument("--kinds", default="edits,calls,prose,prose8")
    parser.add_argument("--most", type=int, default=12, help="requests of each kind")
    parser.add_argument("--few", type=int, default=1, help="of each kind for those")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--each", action="store_true", help="print each request's counts")
    given = parser.parse_args(argv)
    baseline: Path | None = given.baseline
    drafter = ["-md", str(given.draft_model.resolve())] if given.draft_model else []
    worker, native = [sys.executable, *_WORKER], [given.llama_server, "--no-webui"]
    commands = {
        "auto": [*worker, "auto", *drafter],
        "none": [*worker, "none"],
        "ngram": [*worker, "ngram"],
        "model": [*worker, "model", *drafter],
        "spec-default": [*native, *given.llama_server_flags.split()],
        "spec-model": [*native, *drafter, "--spec-type", given.spec_type],
        "before": [f"{baseline and baseline.resolve()}/.venv/bin/python", *_WORKER, "auto"],
    }
    missing = {
        "model": not drafter,
        "spec-default": not given.llama_server,
        "spec-model": not (given.llama_server and drafter),
        "before": baseline is None,
    }
    ways = [way for way in given.ways.split(",") if not missing.get(way)]
    for model in given.models:
        print(f"{Path(model).name}, {given.threads} threads, load {os.getloadavg()[0]:.1f}")
        words = ["--model", str(Path(model).resolve()), "--host", HOST, "-t", str(given.threads),
                 "-c", str(_CELLS), "-np", str(_SLOTS)]  # fmt: skip
        with tempfile.TemporaryDirectory() as logs, ExitStack() as stack:
            servers: dict[str, VectorServer] = {}
            for way in ways:
                port = free_port()
                folder = baseline if way == "before" else None
                command = [*commands[way], *words, "--port", str(port)]
                log = Path(logs) / f"{way}.log"
                process = stack.enter_context(started(command, log, folder=folder))
                servers[way] = VectorServer(f"http://{HOST}:{port}", process.pid)
                wait(servers[way].url)
            time.sleep(SETTLED_S)
            for server in servers.values():  # a first request finds memory that was never touched
                ask(server, prose()[:1])
            asked = list(lists(given.kinds.split(","), given.most))
            found = measure(servers, asked, given.few, each=given.each)
        for line in table(found):
            print(line)
        print(f"load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
