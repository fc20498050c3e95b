"""Vectors beside llama-server: `python -m benchmarks.embeddings MODEL LLAMA_SERVER`.

Each server starts once for each number of threads, with the same model, and the samples of a round
are seconds apart, in an order that changes. A row is what a case took of both: milliseconds of the
clock and of CPU time for each text, medians of the rounds, and the quotients llama-server / worker
with their spread, where more than 1 means that the worker needs less. CPU time is that of the
server's process; on a busy machine it tells more than the clock. `--mixed MODEL` measures one
worker instead: what streams of a model that writes keep beside eight clients that want vectors.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx

from benchmarks.adapters import wait
from benchmarks.peers.endpoints import HOST
from benchmarks.peers.processes import free_port, started

STREAMS, WRITTEN = 8, 200
SETTLED_S = 3.0  # after which a worker moves nothing to large pages any more
_TICKS = os.sysconf("SC_CLK_TCK")


class TextCase(NamedTuple):
    """Clients, each of which asks for so many texts of so many tokens, one request after another.

    requests  of each client in a sample
    """

    clients: int
    inputs: int
    length: int
    requests: int

    def __str__(self) -> str:
        return f"{self.clients} x {self.inputs:3} x {self.length:3} tokens"


CASES = (
    TextCase(1, 1, 16, 60), TextCase(1, 1, 30, 60), TextCase(1, 1, 56, 40), TextCase(1, 1, 128, 30),
    TextCase(1, 1, 500, 10), TextCase(8, 1, 30, 20), TextCase(8, 1, 128, 6), TextCase(1, 64, 16, 3),
    TextCase(1, 256, 30, 1), TextCase(1, 64, 128, 1),
)  # fmt: skip


class VectorServer(NamedTuple):
    """One that is measured, and its process."""

    url: str
    pid: int


class TextSample(NamedTuple):
    """Milliseconds for each text: of the clock, and of the server's CPU time."""

    wall: float
    cpu: float


def texts(inputs: int, length: int, seed: int) -> list[list[int]]:
    """Token ids that no request had before, of three quarters of `length` to `length`; two of a
    text are those that stand around it."""
    lengths = [length - (seed + number * 5) % (length // 4 + 1) for number in range(inputs)]
    return [
        [1_000 + (seed * 7_919 + number * 977 + place * 31) % 20_000 for place in range(count)]
        for number, count in enumerate(lengths)
    ]


def cpu_s(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def sample(server: VectorServer, case: TextCase, seed: int) -> TextSample:
    """Of all clients of the case together."""
    count = case.inputs * case.requests

    def ask(client: int) -> None:
        with httpx.Client(timeout=600) as session:
            for number in range(case.requests):
                first = seed + (client * case.requests + number) * case.inputs
                given = texts(case.inputs, case.length, first)
                answer = session.post(f"{server.url}/v1/embeddings", json={"input": given})
                answer.raise_for_status()

    used, began = cpu_s(server.pid), time.monotonic()
    with ThreadPoolExecutor(case.clients) as pool:
        list(pool.map(ask, range(case.clients)))
    wall, used = time.monotonic() - began, cpu_s(server.pid) - used
    return TextSample(1e3 * wall / count / case.clients, 1e3 * used / count / case.clients)


def quotients(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """llama-server's to the worker's: the median of the rounds' (the least to the largest)."""
    found = sorted(other / one for one, other in zip(ours, theirs, strict=True))
    return f"{statistics.median(found):.3f} ({found[0]:.3f} to {found[-1]:.3f})"


def beside(model: str, server: str, threads: int, rounds: int, cases: Sequence[TextCase]) -> None:
    """The table of both servers."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        servers: list[VectorServer] = []
        shared = ["--model", model, "--host", HOST, "-t", str(threads)]
        for number, command in enumerate(
            ([sys.executable, "-m", "worker", "serve", *shared],
             [server, "--no-webui", "--embedding", "-c", "4096", "-b", "2048", "-ub", "2048",
              *shared])
        ):  # fmt: skip
            port = free_port()
            log = Path(name) / f"{number}.log"
            process = stack.enter_context(started([*command, "--port", str(port)], log))
            servers.append(VectorServer(f"http://{HOST}:{port}", process.pid))
        for each in servers:
            wait(each.url)
        time.sleep(SETTLED_S)
        print(f"{threads} threads: ms of the clock, of CPU time; worker / llama-server", flush=True)
        seed = 0
        for case in cases:
            found: list[list[TextSample]] = [[], []]
            for round_ in range(rounds + 1):
                for place in (0, 1) if round_ % 2 else (1, 0):
                    seed += 10_000
                    taken = sample(servers[place], case, seed)
                    if round_:  # the first one is not told
                        found[place].append(taken)
            ours, theirs = (list(zip(*samples, strict=True)) for samples in found)
            told = [
                f"{statistics.median(one):7.2f} / {statistics.median(other):7.2f}: "
                f"{quotients(one, other)}"
                for one, other in zip(ours, theirs, strict=True)
            ]
            print(f"{case}: clock {told[0]}, CPU {told[1]}", flush=True)


def mixed(model: str, threads: int, rounds: int) -> None:
    """Tokens a second of eight streams, alone and beside eight clients that want vectors."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        port = free_port()
        command = [sys.executable, "-m", "worker", "serve", "--model", model, "--host", HOST,
                   "--port", str(port), "-t", str(threads), "-np", str(STREAMS), "-c", "8192",
                   "--pooling", "mean", "--draft", "none"]  # fmt: skip
        stack.enter_context(started(command, Path(name) / "worker.log"))
        url = f"http://{HOST}:{port}"
        wait(url)

        def write(number: int) -> int:
            body = {"prompt": texts(1, 32, number)[0], "max_tokens": WRITTEN, "temperature": 0,
                    "ignore_eos": True}  # fmt: skip
            answer = httpx.post(f"{url}/v1/completions", json=body, timeout=600)
            return int(answer.raise_for_status().json()["usage"]["completion_tokens"])

        def written_per_s() -> float:
            began = time.monotonic()
            with ThreadPoolExecutor(STREAMS) as pool:
                return sum(pool.map(write, range(STREAMS))) / (time.monotonic() - began)

        shares: list[float] = []
        for round_ in range(rounds + 1):
            alone = written_per_s()
            busy = _beside_embedders(url, written_per_s)
            if round_:
                shares.append(busy[0] / alone)
                print(
                    f"streams {alone:.1f} tok/s alone, {busy[0]:.1f} beside {busy[1]:.1f} texts/s",
                    flush=True,
                )
        print(f"share kept: {statistics.median(shares):.3f}")


def _beside_embedders(url: str, measure: Callable[[], float]) -> tuple[float, float]:
    """What is measured while eight clients ask, and their texts a second."""
    ended, count = threading.Event(), [0] * STREAMS

    def ask(client: int) -> None:
        with httpx.Client(timeout=600) as session:
            while not ended.is_set():
                given = texts(1, 128, client * 1_000 + count[client])
                session.post(f"{url}/v1/embeddings", json={"input": given}).raise_for_status()
                count[client] += 1

    with ThreadPoolExecutor(STREAMS) as pool:
        asking = [pool.submit(ask, client) for client in range(STREAMS)]
        time.sleep(1.0)
        before, began = sum(count), time.monotonic()
        found = measure()
        speed = (sum(count) - before) / (time.monotonic() - began)
        ended.set()
        for each in asking:
            each.result()
    return found, speed


def main() -> None:
    """Start, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("llama_server", nargs="?")
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--cases",
        type=int,
        nargs="+",
        default=range(len(CASES)),
        metavar="PLACE",
        help=", ".join(f"{place}: {case}" for place, case in enumerate(CASES)),
    )
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.mixed:
        mixed(given.model, given.threads[-1], given.rounds)
    elif given.llama_server:
        for threads in given.threads:
            cases: list[int] = given.cases
            chosen = [CASES[place] for place in cases]
            beside(given.model, given.llama_server, threads, given.rounds, chosen)
    else:
        parser.error("name a llama-server, or --mixed")


if __name__ == "__main__":
    main()
