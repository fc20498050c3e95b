"""What the way through a fleet costs: one worker, asked itself and through the endpoint, in turns.

    .venv-fleet/bin/python -m benchmarks.fleet FILE [--rounds 5]

The same worker process answers both, so the difference is the way: Ray's proxy, the gateway, and
the CPU time that they take from a worker on the same machine. RAY_SERVE_ENABLE_HA_PROXY=1 in the
environment measures HAProxy instead of Ray's proxy in Python.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import threading
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

TOKENS = 64
STREAMS = (1, 8, 32)
NAMES = {
    "gateway": "ray::ServeReplica:fleet:gateway",
    "proxy": "ray::ProxyActor",
    "haproxy": "haproxy-serve",
}


class Timing(NamedTuple):
    """Of one stream, in seconds: to the first event, between events, tokens in all."""

    first: float
    gaps: list[float]
    tokens: int


async def stream(url: str, key: str | None, prompt: str) -> Timing:
    """Read one stream."""
    parts = urlsplit(url)
    body = json.dumps({
        "model": "bench", "prompt": prompt, "max_tokens": TOKENS, "stream": True,
        "ignore_eos": True, "temperature": 0,
    }).encode()  # fmt: skip
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
    head += f"authorization: Bearer {key}\r\n\r\n" if key else "\r\n"
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    began = last = time.perf_counter()
    writer.write(head.encode() + body)
    first, gaps, tokens, ended = 0.0, list[float](), 0, False
    while not ended:
        line = await reader.readline()
        if not line:
            raise ConnectionError("a stream broke off")
        if line.startswith(b"data: {"):
            now = time.perf_counter()
            gaps.append(now - last)
            first = first or now - began
            last, tokens = now, tokens + 1
        ended = line.startswith(b"data: [DONE]")
    writer.close()
    return Timing(first, gaps[1:], tokens)


async def measure(url: str, key: str | None, count: int, turn: str) -> tuple[float, float, float]:
    """Medians of time to the first token and of the gap, in ms, and tokens/s of all streams."""
    began = time.perf_counter()
    prompts = (f"Story {turn} {n}: once upon a time" for n in range(count))
    found = await asyncio.gather(*(stream(url, key, prompt) for prompt in prompts))
    took = time.perf_counter() - began
    first = statistics.median(each.first for each in found)
    gap = statistics.median(gap for each in found for gap in each.gaps)
    return 1e3 * first, 1e3 * gap, sum(each.tokens for each in found) / took


def cpu_seconds() -> dict[str, float]:
    """CPU time of the gateway and of Ray's proxy so far. There must be one fleet on the machine."""
    found = dict.fromkeys(NAMES, 0.0)
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            title = (folder / "cmdline").read_text()
            for name, start in NAMES.items():
                if start in title:
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    ticks = int(fields[11]) + int(fields[12])
                    found[name] += ticks / os.sysconf("SC_CLK_TCK")
    return found


def compare(ways: dict[str, tuple[str, str | None]], rounds: int) -> None:
    """Print a line for each way and number of streams: medians over the rounds."""
    print("streams  way      first ms   gap ms   tok/s   CPU in us a token")
    for count in STREAMS:
        found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
        spent = dict.fromkeys(NAMES, 0.0)
        for turn in range(rounds + 1):  # the first one warms up
            for way, (url, key) in ways.items():
                before = cpu_seconds()
                values = asyncio.run(measure(url, key, count, f"{way} {turn}"))
                after = cpu_seconds()
                if turn:
                    found[way].append(values)
                if turn and key is None:
                    spent = {name: spent[name] + after[name] - before[name] for name in NAMES}
        for way, values in found.items():
            first, gap, rate = (statistics.median(column) for column in zip(*values, strict=True))
            told = ", ".join(
                f"{name} {1e6 * seconds / (rounds * count * TOKENS):.0f}"
                for name, seconds in spent.items()
            )
            print(f"{count:7}  {way:7} {first:9.1f} {gap:8.2f} {rate:7.0f}   ", end="")
            print(told if way == "fleet" else "")


def main() -> None:
    """Start a fleet of one worker and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="a GGUF file")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    from ray import serve

    from worker.fleet.cluster import cluster
    from worker.fleet.file import Fleet, FleetEndpoint, FleetModel
    from worker.fleet.members import PREFIX
    from worker.fleet.roster import Roster, follow
    from worker.fleet.running import running

    options = ("-np", "32", "-c", "8192", "--cache-ram", "0", "--threads", "1")
    model = FleetModel(file=arguments.file, options=options)
    fleet = Fleet(endpoint=FleetEndpoint(port=8767), models={"bench": model})
    roster = Roster({"bench": "none"})
    follow(roster)
    with cluster(None), running(fleet, threading.Event(), "127.0.0.1") as url:
        handle = serve.get_deployment_handle(PREFIX + "bench", "fleet")
        handle.options()
        while not roster.members("bench"):
            time.sleep(0.1)
        (member,) = roster.members("bench")
        compare({"worker": (member.url, member.key), "fleet": (url, None)}, arguments.rounds)


if __name__ == "__main__":
    main()
