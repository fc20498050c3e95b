"""What the way through a fleet costs: one worker, asked itself and through the endpoint, in turns.

The same worker process answers all, so the difference is the way: the gateway, and the CPU time
that it takes from a worker on the same machine. With the path of a vllm-router it is a third way.
"""

# pyright: standard
# Ray's own types are unknown in part.
from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from benchmarks.processes import GATEWAY, cpu_seconds, free_port, named

if TYPE_CHECKING:
    from gguf_fleet.routing import Member

TOKENS = 64
_PATIENCE_S = 30.0
STREAMS = (1, 8, 32)


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
    head += "content-type: application/json\r\n"
    head += f"authorization: Bearer {key}\r\n\r\n" if key else "\r\n"
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    began = last = time.perf_counter()
    writer.write(head.encode() + body)
    if b" 200 " not in await reader.readline():
        raise ConnectionError("no stream")
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


class Way(NamedTuple):
    """Where to ask, with which key, and the processes that stand between there and the worker."""

    url: str
    key: str | None
    pids: list[int]


def compare(ways: dict[str, Way], rounds: int, streams: list[int]) -> None:
    """Print a line for each way and number of streams: medians over the rounds, and the medians of
    the rounds' differences and ratios to the worker, because a busy machine is busy for all ways of
    a round."""
    print(
        "streams  way          first ms  later   gap ms   tok/s  of the worker's   CPU, us a token"
    )
    for count in streams:
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
        spent = dict.fromkeys(ways, 0.0)
        for turn in range(rounds + 1):  # the first one warms up
            # Who comes after whom is not the same in each round.
            for name, way in random.sample(list(ways.items()), len(ways)):
                before = sum(map(cpu_seconds, way.pids))
                values = asyncio.run(measure(way.url, way.key, count, f"{name} {turn}"))
                if turn:
                    found[name].append(values)
                    spent[name] += sum(map(cpu_seconds, way.pids)) - before
        for name, values in found.items():
            first, gap, rate = (statistics.median(column) for column in zip(*values, strict=True))
            pairs = list(zip(values, found["worker"], strict=True))
            ratio = statistics.median(own[2] / worker[2] for own, worker in pairs)
            later = statistics.median(own[0] - worker[0] for own, worker in pairs)
            cost = 1e6 * spent[name] / (rounds * count * TOKENS)
            line = f"{count:7}  {name:11} {first:9.1f} {later:+6.1f} {gap:8.2f} {rate:7.0f}"
            print(f"{line} {ratio:16.3f} {cost:17.0f}", flush=True)


@contextmanager
def routed(router: str | None, member: Member) -> Generator[dict[str, Way]]:
    """Inside, a vllm-router leads to the worker; nothing where there is no path of one."""
    if router is None:
        yield {}
        return
    port = free_port()
    process = subprocess.Popen(
        [router, "--host", "127.0.0.1", "--port", str(port), "--worker-urls", member.url,
         "--policy", "round_robin", "--prometheus-port", str(free_port()),
         "--log-level", "error"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                asyncio.run(measure(url, member.key, 1, "ready?"))
                break
            except (OSError, ConnectionError):
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
        yield {"vllm-router": Way(url, member.key, [process.pid])}
    finally:
        process.terminate()
        process.wait()


def run(files: list[str], rounds: int, router: str | None, streams: list[int]) -> None:
    """Start a fleet of one worker of each model, one after the other, and compare."""
    from gguf_fleet.cluster import cluster

    with cluster(None):
        for file in files:
            print(file, flush=True)
            _run(file, rounds, router, streams)


def _run(file: str, rounds: int, router: str | None, streams: list[int]) -> None:
    from ray import serve

    from gguf_fleet.file import Fleet, FleetEndpoint, FleetModel
    from gguf_fleet.members import PREFIX
    from gguf_fleet.roster import Roster, follow
    from gguf_fleet.running import open_fleet

    options = ("-np", "32", "-c", "8192", "--cache-ram", "0", "--threads", "1")
    model = FleetModel(file=file, options=options)
    fleet = Fleet(endpoint=FleetEndpoint(port=free_port()), models={"bench": model})
    roster = Roster({"bench": "none"})
    follow(roster)
    with open_fleet(fleet, threading.Event(), "127.0.0.1") as url:
        handle = serve.get_deployment_handle(PREFIX + "bench", "fleet")
        handle.options()
        while not roster.members("bench"):
            time.sleep(0.1)
        (member,) = roster.members("bench")
        # Of the gateways one waits for the other's port.
        ways = {"worker": Way(member.url, member.key, []), "fleet": Way(url, None, named(GATEWAY))}
        with routed(router, member) as more:
            compare({**ways, **more}, rounds, streams)
