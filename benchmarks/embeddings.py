"""Vectors beside llama-server: `python -m benchmarks.embeddings MODEL LLAMA_SERVER`.

Each server starts once, with the same model and threads, and the samples of a round are seconds
apart. A row is texts a second of a client that asks for so many inputs of so many tokens at once,
or of eight such clients, and the quotient: the median of the rounds'. `--mixed MODEL` measures one
worker instead: what streams of a model that writes keep beside eight clients that want vectors.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx

from benchmarks.adapters import wait
from benchmarks.peers.endpoints import HOST
from benchmarks.peers.processes import free_port, started

CASES = [(inputs, length) for length in (16, 128, 500) for inputs in (1, 64)]
TOKENS_A_SAMPLE = 6_000
STREAMS, WRITTEN = 8, 200


def texts(inputs: int, length: int, seed: int) -> list[list[int]]:
    """Token ids that no request had before; two of a text are those that stand around it."""
    return [
        [1_000 + (seed * 7_919 + number * 977 + place * 31) % 20_000 for place in range(length)]
        for number in range(inputs)
    ]


def texts_per_s(url: str, inputs: int, length: int, clients: int, seed: int) -> float:
    """Of all clients together, each with requests one after the other."""
    requests = max(1, TOKENS_A_SAMPLE // (inputs * length * clients))

    def ask(client: int) -> None:
        with httpx.Client(timeout=600) as session:
            for number in range(requests):
                given = texts(inputs, length, seed + client * requests + number)
                session.post(f"{url}/v1/embeddings", json={"input": given}).raise_for_status()

    began = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(ask, range(clients)))
    return inputs * requests * clients / (time.monotonic() - began)


def beside(model: str, server: str, threads: int, rounds: int) -> None:
    """The table of both servers."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        urls: list[str] = []
        shared = ["--model", model, "--host", HOST, "-t", str(threads)]
        for number, command in enumerate(
            ([sys.executable, "-m", "worker", "serve", *shared],
             [server, "--no-webui", "--embedding", "-c", "4096", "-b", "2048", "-ub", "2048",
              *shared])
        ):  # fmt: skip
            port = free_port()
            log = Path(name) / f"{number}.log"
            stack.enter_context(started([*command, "--port", str(port)], log))
            urls.append(f"http://{HOST}:{port}")
        for url in urls:
            wait(url)
        seed = 0
        for inputs, length in CASES:
            for clients in (1, 8):
                found: list[list[float]] = [[], []]
                for round_ in range(rounds + 1):
                    for speeds, url in zip(found, urls, strict=True):
                        seed += 10_000
                        speed = texts_per_s(url, inputs, length, clients, seed)
                        if round_:  # the first one is not told
                            speeds.append(speed)
                ours, theirs = found
                ratios = sorted(one / other for one, other in zip(ours, theirs, strict=True))
                print(
                    f"{inputs:3} x {length:3} tokens, {clients} clients: "
                    f"{statistics.median(ours):8.1f} {statistics.median(theirs):8.1f} texts/s, "
                    f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})",
                    flush=True,
                )


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
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.mixed:
        mixed(given.model, given.threads, given.rounds)
    elif given.llama_server:
        beside(given.model, given.llama_server, given.threads, given.rounds)
    else:
        parser.error("name a llama-server, or --mixed")


if __name__ == "__main__":
    main()
