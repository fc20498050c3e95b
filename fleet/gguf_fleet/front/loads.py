"""How much each replica has to do: what this gateway has sent, and what others have."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager

import msgspec

from gguf_fleet.roster import Roster
from gguf_fleet.routing import Member

_PERIOD_S = 1.0

# What a worker's /health says, or nothing.
AsksHealth = Callable[[Member], Awaitable[bytes]]


class Loads:
    """Requests that are under way, by replica; for the event loop's thread.

    counts  those that this gateway has sent
    others  those of other gateways
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.others: dict[str, int] = {}

    @property
    def all(self) -> Mapping[str, int]:
        return self.counts + Counter(self.others) if self.others else self.counts

    @contextmanager
    def hold(self, replica: str) -> Generator[None]:
        self.counts[replica] += 1
        try:
            yield
        finally:
            self.counts[replica] -= 1
            if not self.counts[replica]:
                del self.counts[replica]


class Busy(msgspec.Struct):
    """Of /health."""

    slots_processing: int
    queue_depth: int


class Others:
    """Where several gateways send requests to the same replicas: asks each worker once a second how
    much it has to do. What is not ours is the others'."""

    def __init__(self, roster: Roster, loads: Loads, health: AsksHealth) -> None:
        self._roster = roster
        self._loads = loads
        self._health = health
        self._task = asyncio.create_task(self._watch())

    def close(self) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            found = await asyncio.gather(*(self._of(member) for _, member in self._roster.all()))
            self._loads.others = {name: count for name, count in found if count}
            await asyncio.sleep(_PERIOD_S)

    async def _of(self, member: Member) -> tuple[str, int]:
        said = await self._health(member)
        if not said:
            return member.id, 0
        busy = msgspec.json.decode(said, type=Busy)
        count = busy.slots_processing + busy.queue_depth - self._loads.counts[member.id]
        return member.id, max(0, count)
