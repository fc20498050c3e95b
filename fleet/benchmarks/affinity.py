"""Conversations that come back, over four workers: what each way to choose one makes of them.

One gateway, the same workers and the same texts for all ways, in turns; Ray has no part in it.
`hits` is the share of all prompt tokens that a worker had read before. The CPU time is that of the
four workers: a busy machine does not change it as it changes the time.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from benchmarks.felt import ask_whole
from benchmarks.processes import cpu_seconds
from gguf_fleet import routing
from gguf_fleet.charge import Charge
from gguf_fleet.command import WORKER
from gguf_fleet.front.gateway import Gateway
from gguf_fleet.front.port import FleetPort
from gguf_fleet.need import Need
from gguf_fleet.roster import Roster
from gguf_fleet.routing import Member

WORKERS = 4
SLOTS = 4
_TOKENS = 16
_OPTIONS = ("-t", "1", "-c", "8192", "-np", str(SLOTS), "--cache-ram", "32")

Order = Callable[..., list[Member]]


class Load(NamedTuple):
    """Conversations. Lengths in characters, of which four are about a token.

    shared  the beginning that all have in common
    grouped  then a text that each group of four has in common
    own     then one of the conversation's own
    turns   requests of a conversation; each holds all before it
    """

    shared: int
    grouped: int
    own: int
    turns: int
    conversations: int = 8


LOADS = {
    "long prefixes": Load(400, 0, 5000, 4, 12),
    "no prefixes": Load(0, 0, 200, 1, 64),
    "system prompt of 600": Load(600, 0, 1200, 3),
    "system prompt of 2,000": Load(2000, 0, 1200, 3),
    "documents of 2,000 for four": Load(0, 2000, 300, 3),
}
# Which ways are of interest: the ways for the first two, lengths of the head for the others.
HEADS = (256, 1024, 4096)


class RunFigures(NamedTuple):
    """Of all conversations: the share of hits, tokens written a second, CPU seconds."""

    hits: float
    rate: float
    cpu: float


def round_robin() -> Order:
    """One after the other."""
    turns = itertools.count()

    def order(members: Sequence[Member], *_: Any) -> list[Member]:
        first = next(turns) % len(members)
        return [*members[first:], *members[:first]]

    return order


def power_of_two(
    members: Sequence[Member],
    loads: Mapping[str, int],
    _key: bytes | None,
    *_: object,
) -> list[Member]:
    """The less loaded of two by chance."""
    return sorted(random.sample(list(members), len(members))[:2], key=lambda m: loads.get(m.id, 0))


WAYS: dict[str, Callable[[], Order]] = {
    "prefix": lambda: routing.order,
    "round robin": round_robin,
    "power of two": lambda: power_of_two,
}


@contextmanager
def chosen(way: str, head: int = 1024) -> Any:
    """Inside, the gateway chooses in this way."""
    with (
        patch("gguf_fleet.routing.order", WAYS[way]()),
        patch("gguf_fleet.front.asked.HEAD", head),
    ):
        yield


class Fleet4(NamedTuple):
    """The endpoint, and the processes of the workers."""

    url: str
    pids: list[int]


@asynccontextmanager
async def fleet_of_four(file: str) -> AsyncGenerator[Fleet4]:
    """Four workers behind a gateway."""
    need = Need(
        model="bench", file=file, replicas=WORKERS, affinity="prefix", cpus=1, memory=0,
        num_cells=8192, num_slots=SLOTS, queue=64, drain=1, options=_OPTIONS,
    )  # fmt: skip
    charges = [Charge(need, "127.0.0.1", WORKER) for _ in range(WORKERS)]
    roster = Roster({"bench": "prefix"})
    port = FleetPort(Gateway(roster, None), "127.0.0.1", 0)
    try:
        words = [await each.start() for each in charges]
        roster.publish("bench", [
            Member(f"r{n}", word.url, each.key, SLOTS, SLOTS + 64, "here")
            for n, (each, word) in enumerate(zip(charges, words, strict=True))
        ])  # fmt: skip
        await port.open()
        yield Fleet4(f"http://127.0.0.1:{port.port}", [word.pid for word in words])
        await port.close()
    finally:
        await asyncio.gather(*(each.drain() for each in charges))


def text(chance: random.Random, length: int) -> str:
    """So many characters that nobody has said before."""
    return "".join(chance.choices("aeionrstlmdk   ", k=length))


async def converse(url: str, load: Load, seed: str) -> tuple[int, int]:
    """All conversations, seven at a time: (prompt tokens, those of them that were known)."""
    common = text(random.Random(seed), load.shared)
    free = asyncio.Semaphore(7)
    prompt_tokens = cached = 0

    async def one(number: int) -> None:
        nonlocal prompt_tokens, cached
        own = random.Random(f"{seed} {number}")
        group = text(random.Random(f"{seed} group {number // 4}"), load.grouped)
        prompt = common + group + text(own, load.own)
        for _ in range(load.turns):
            async with free:
                body = {
                    "model": "bench", "prompt": prompt, "max_tokens": _TOKENS, "temperature": 0,
                    "ignore_eos": True,
                }  # fmt: skip
                said = msgspec.json.decode(await ask_whole(url, body))
            prompt_tokens += said["usage"]["prompt_tokens"]
            cached += said["usage"]["prompt_tokens_details"]["cached_tokens"]
            prompt += said["choices"][0]["text"] + text(own, 120)

    numbers = list(range(load.conversations))
    random.Random(seed).shuffle(numbers)
    await asyncio.gather(*map(one, numbers))
    return prompt_tokens, cached


async def measured(fleet: Fleet4, load: Load, seed: str) -> RunFigures:
    """One run of a load."""
    before = sum(map(cpu_seconds, fleet.pids))
    began = time.monotonic()
    prompt_tokens, cached = await converse(fleet.url, load, seed)
    took = time.monotonic() - began
    spent = sum(map(cpu_seconds, fleet.pids)) - before
    written = load.conversations * load.turns * _TOKENS
    return RunFigures(cached / prompt_tokens, written / took, spent)


async def compare(file: str, rounds: int, only: Sequence[str]) -> None:
    """Print a line for each load and way: medians over the rounds, and their spread."""
    print("load                         way / head     hits   tok/s (range)        CPU s")
    async with fleet_of_four(file) as fleet:
        for name in only:
            is_head = not name.endswith("prefixes")
            ways = [("prefix", head) for head in HEADS] if is_head else [(w, 1024) for w in WAYS]
            found: dict[tuple[str, int], list[RunFigures]] = {way: [] for way in ways}
            for turn in range(rounds):
                for way in ways:
                    with chosen(*way):
                        seed = f"{name} {way} {turn} {time.time_ns()}"
                        found[way].append(await measured(fleet, LOADS[name], seed))
            for (way, head), results in found.items():
                hits, rate, cpu = map(statistics.median, zip(*results, strict=True))
                rates = [each.rate for each in results]
                shown = f"head {head:,}" if is_head else way
                print(
                    f"{name:28} {shown:13} {hits:5.0%}  {rate:6.1f} "
                    f"({min(rates):.1f}-{max(rates):.1f})  {cpu:8.1f}", flush=True,
                )  # fmt: skip


def run(file: str, rounds: int, only: Sequence[str]) -> None:
    """Start the workers and compare."""
    asyncio.run(compare(file, rounds, only))
