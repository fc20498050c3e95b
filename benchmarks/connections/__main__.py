"""What slow, idle, leaving and very many clients do to a worker, and to the others.

    python -m benchmarks.connections [--model FILE] [--threads N] [--slow 500] [--rounds 4]
        [--leavers 10000] [--cancels 100] [--words 700] [--only slow,idle,left,cancel,full]

slow    p95 of well-behaved clients beside slow connections, and without them, in turn: heads and
        bodies of a byte a second, readers that never read
idle    GET /health of a worker that may open 30 files, beside 40 connections that say nothing
left    what clients that leave at random moments leave behind
cancel  how long the worker goes on for a client that left, while writing and while reading
full    how soon those of 256 clients are refused who find no place: beside 68 that have all of them
        (4 slots, a queue of 64), over connections that are open and over new ones, and where all
        256 come at the same moment

Linux only: what a process holds is read from /proc.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.connections import cancels
from benchmarks.connections.held import watched
from benchmarks.connections.leavers import leave_all
from benchmarks.connections.others import Waits, p95, waits_of
from benchmarks.connections.refused import Refusals, come_at_once, taken
from benchmarks.connections.slow import SlowConnections
from worker.demo import MODEL_PATH

_SLICE_S = 5.0
_SETTLE_S = 2.0
_STREAMS = 2
_FEW_FILES, _IDLE = 30, 40
_TOKENS, _WORDS = 24, 600
_CLIENTS, _SLOTS, _QUEUE = 256, 4, 64


def slow(options: list[str], arguments: argparse.Namespace) -> None:
    """Print p95s with and without slow connections, and their ratios."""
    alone: Waits = {}
    beside: Waits = {}
    cpu = {False: 0.0, True: 0.0}
    with watched(options) as worker:
        waits_of(worker, _SETTLE_S, _STREAMS)
        for _ in range(arguments.rounds):
            for is_slow, found in ((False, alone), (True, beside)):
                with contextlib.ExitStack() as stack:
                    if is_slow:
                        people = SlowConnections(worker.host, worker.port, arguments.slow)
                        stack.enter_context(people)
                    time.sleep(_SETTLE_S)
                    before = worker.cpu_s
                    for name, waits in waits_of(worker, _SLICE_S, _STREAMS).items():
                        found.setdefault(name, []).extend(waits)
                    cpu[is_slow] += worker.cpu_s - before
    for name in sorted(alone):
        without, with_slow = p95(alone[name]), p95(beside[name])
        print(
            f"slow    {name:11} p95 {without * 1000:7.2f} ms alone, {with_slow * 1000:7.2f} beside "
            f"{arguments.slow} slow: x{with_slow / without:.3f} "
            f"({len(alone[name])} and {len(beside[name])})"
        )
    tokens = [len(found["next token"]) for found in (alone, beside)]
    print(f"slow    CPU time a token x{cpu[True] / tokens[1] / (cpu[False] / tokens[0]):.3f}")


def idle(options: list[str], _arguments: argparse.Namespace) -> None:
    """Print how long health takes beside idle connections under few files."""
    waits: list[float] = []
    with watched(options, max_files=_FEW_FILES) as worker, contextlib.ExitStack() as held:
        for _ in range(_IDLE):
            address = (worker.host, worker.port)
            held.enter_context(socket.create_connection(address, timeout=60))
        for _ in range(20):
            begun = time.perf_counter()
            worker.health()
            waits.append(time.perf_counter() - begun)
        files = worker.num_files
    print(
        f"idle    /health beside {_IDLE} idle connections, ulimit -n {_FEW_FILES}: first "
        f"{waits[0] * 1000:.1f} ms, most {max(waits) * 1000:.1f} ms; {files} descriptors"
    )


def left(options: list[str], arguments: argparse.Namespace) -> None:
    """Print what is left behind, after a tenth as many have left before it is counted."""
    # What is kept of ended conversations would be most of what is there more.
    with watched([*options, "--cache-ram", "0"]) as worker:

        def come(count: int, seed: int) -> dict[str, int]:
            moments = leave_all(
                worker.host, worker.port, count, seed=seed, tokens=_TOKENS, words=_WORDS
            )
            worker.wait_until_idle()
            time.sleep(_SETTLE_S)
            return dict(moments)

        def held() -> dict[str, int]:
            return {
                "slots": worker.health()["slots_processing"],
                "tasks": int(worker.metric("worker_tasks")),
                "descriptors": worker.num_files,
                "live cells": int(worker.metric('worker_kv_cells{model_name="demo",state="live"')),
                "anonymous bytes": worker.anonymous,
            }

        come(arguments.leavers // 10, 1)
        before = held()
        moments = come(arguments.leavers, 1_000_000)
        after = held()
    print(f"left    {sum(moments.values())} clients: {moments}")
    for name, count in after.items():
        more = count - before[name]
        print(f"left    {name}: {before[name]:,} before, {count:,} after: {more:+,}")


def cancel(options: list[str], arguments: argparse.Namespace) -> None:
    """Print p50 and p99 of how long it goes on."""
    with watched(options) as worker:
        writing = cancels.while_writing(worker, arguments.cancels)
        reading, chunk = cancels.while_reading(worker, arguments.cancels, arguments.words)
    for name, waits in (("writing", writing), ("reading", reading)):
        p50, p99 = (np.percentile(waits, share, axis=0) * 1000 for share in (50, 99))
        print(
            f"cancel  {name}: p50 {p50[0]:.1f} ms, p99 {p99[0]:.1f} ms of {len(waits)}; "
            f"of CPU time {p50[1]:.1f} and {p99[1]:.1f}"
        )
    print(f"cancel  a chunk takes {chunk.seconds * 1000:.1f} ms, {chunk.cpu_s * 1000:.1f} of CPU")


def full(options: list[str], arguments: argparse.Namespace) -> None:
    """Print p50 and p99 of how long they wait for it, and CPU times."""
    found: dict[str, list[Refusals]] = {}
    with watched([*options, "-np", str(_SLOTS), "--queue-size", str(_QUEUE)]) as worker:
        places = _SLOTS + _QUEUE
        ask = partial(come_at_once, worker, most=_CLIENTS - places)
        for _ in range(arguments.rounds):
            for name, connected in (("full, connected", True), ("full, new", False)):
                with taken(worker, places):
                    each = ask(_CLIENTS - places, connected=connected)
                found.setdefault(name, []).append(each)
            found.setdefault("empty, connected", []).append(ask(_CLIENTS, connected=True))
            worker.wait_until_idle()
    for name, times in found.items():
        p50, p99 = (
            np.array([np.percentile(each.waits, share) for each in times]) for share in (50, 99)
        )
        count = sum(len(each.waits) for each in times)
        loop = sum(each.loop_s for each in times) / count
        client = np.median([each.client_s for each in times])
        print(
            f"{name:17} p50 {np.median(p50) * 1000:.1f} ms ({p50.min() * 1000:.1f} to "
            f"{p50.max() * 1000:.1f}), p99 {np.median(p99) * 1000:.1f} ms of "
            f"{count} refusals in {len(times)} rounds; CPU time of the event loop "
            f"{loop * 1e6:.0f} us each, of the clients {client * 1000:.1f} ms together"
        )


PARTS: dict[str, Callable[[list[str], argparse.Namespace], None]] = {
    "slow": slow, "idle": idle, "left": left, "cancel": cancel, "full": full,
}  # fmt: skip


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default=str(MODEL_PATH))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slow", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--leavers", type=int, default=10_000)
    parser.add_argument("--cancels", type=int, default=100)
    parser.add_argument("--words", type=int, default=700, help="of a prompt that is left")
    parser.add_argument("--only", default=",".join(PARTS))
    arguments = parser.parse_args()
    options = ["--model", arguments.model, "--threads", str(arguments.threads), "-c", "8192"]
    print(f"worker serve {' '.join(options)}, {_STREAMS} streams of well-behaved clients")
    for name in arguments.only.split(","):
        PARTS[name](options, arguments)


if __name__ == "__main__":
    main()
