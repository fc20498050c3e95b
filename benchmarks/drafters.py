"""An EAGLE-3 drafter beside no drafts: `python -m benchmarks.drafters [--llama-server FILE]`.

The demo model continues new held-out stories, greedily, in one stream and in eight; `make check
SUITE=drafts` trains the drafter before. Workers with and without it, and llama-server with and
without it, get the same requests in turns. A row has tokens a step, CPU seconds of the process for
1,000 tokens, and the ratio of these to those without drafts, round by round: of one program, since
a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import httpx

from benchmarks.adapters import wait
from benchmarks.embeddings import cpu_s
from benchmarks.peers.endpoints import HOST
from benchmarks.peers.processes import free_port, started
from checks.drafts.steps import DRAFTER
from scripts.demo_model.corpus import held_out_documents
from worker.demo import MODEL_PATH

TOKENS, BEGUN = 200, 120  # tokens that are written, and characters of a story's beginning
STREAMS = (1, 8)
EACH = 8  # stories of a round


class DraftPeer(NamedTuple):
    """A server. base: the one without drafts, to which it is compared"""

    name: str
    words: tuple[str, ...]
    base: str


WITHOUT, WITH = ("--draft", "none"), ("-md", str(DRAFTER))
WORKERS = (
    DraftPeer("none", WITHOUT, "none"),
    DraftPeer("auto", WITH, "none"),
    DraftPeer("model", (*WITH, "--draft", "model"), "none"),
)
PEERS = (
    DraftPeer("llama-server", (), "llama-server"),
    DraftPeer("llama-server, eagle3", (*WITH, "--spec-type", "draft-eagle3"), "llama-server"),
)


class DraftCost(NamedTuple):
    """Of one round: tokens of each step, CPU seconds for 1,000 tokens."""

    a_step: float
    cpu_s: float


def ask(url: str, prompt: str) -> tuple[int, int]:
    """Tokens and steps of one text."""
    body = {
        "prompt": prompt, "n_predict": TOKENS, "temperature": 0, "ignore_eos": True,
        "cache_prompt": False,
    }  # fmt: skip
    answer = httpx.post(f"{url}/completion", json=body, timeout=600).raise_for_status().json()
    timings = answer["timings"]
    return timings["predicted_n"], timings["predicted_n"] - timings.get("draft_n_accepted", 0)


def round_of(url: str, pid: int, streams: int, stories: Sequence[str]) -> DraftCost:
    """So many at once."""
    before = cpu_s(pid)
    with ThreadPoolExecutor(streams) as pool:
        found = list(pool.map(partial(ask, url), stories))
    tokens = sum(count for count, _ in found)
    return DraftCost(
        tokens / sum(steps for _, steps in found), 1000 * (cpu_s(pid) - before) / tokens
    )


def main() -> None:
    """Start all, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama-server")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    # Each is new: what a worker has seen it copies.
    texts = held_out_documents(seed=1, size=1_000 * EACH * len(STREAMS) * (given.rounds + 1))
    stories = iter([text[:BEGUN] for text in texts if len(text) > 2 * BEGUN])
    peers = (*WORKERS, *(PEERS if given.llama_server else ()))
    running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for peer in peers:
            port = free_port()
            command = (
                [sys.executable, "-m", "worker", "serve"]
                if peer in WORKERS
                else [given.llama_server, "--no-webui"]
            )
            command += ["--model", str(MODEL_PATH), "-c", "4096", "-np", str(max(STREAMS))]
            command += ["-t", "1", "--host", HOST, "--port", str(port), *peer.words]
            log = Path(folder) / f"{peer.name}.log"
            running[peer.name] = f"http://{HOST}:{port}", stack.enter_context(started(command, log))
        for url, _ in running.values():
            wait(url)
        for streams in STREAMS:
            costs: dict[str, list[DraftCost]] = {peer.name: [] for peer in peers}
            for number in range(given.rounds + 1):  # the first one is not told
                asked = list(islice(stories, EACH))
                for name, (url, process) in running.items():
                    cost = round_of(url, process.pid, streams, asked)
                    costs[name] += [cost] if number else []
            for peer in peers:
                ratios = [
                    base.cpu_s / cost.cpu_s
                    for base, cost in zip(costs[peer.base], costs[peer.name], strict=True)
                ]
                print(
                    f"{streams} streams, {peer.name}: "
                    f"{statistics.median(cost.a_step for cost in costs[peer.name]):.2f} a step, "
                    f"{statistics.median(cost.cpu_s for cost in costs[peer.name]):.2f} CPU s for "
                    f"1,000 tokens, without drafts / with {statistics.median(ratios):.2f} "
                    f"({min(ratios):.2f} to {max(ratios):.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
