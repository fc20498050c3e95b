"""Where several gateways send requests to the same replicas: what the others have sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from worker.fleet.front.loads import Loads
from worker.fleet.roster import Roster
from worker.fleet.routing import Member

_PERIOD_S = 1.0

# What a worker's /health says, or nothing.
AsksHealth = Callable[[Member], Awaitable[bytes]]


class Busy(msgspec.Struct):
    """Of /health."""

    slots_processing: int
    queue_depth: int


class Others:
    """Asks each worker once a second how much it has to do; what is not ours is the others'."""

    def __init__(self, roster: Roster, loads: Loads, health: AsksHealth) -> None:
        self._roster = roster
        self._loads = loads
        self._health = health
        self._task = asyncio.create_task(self._watch())

    def close(self) -> None:
        """Ask nobody any more."""
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
