"""Requests for a model that has no replica now: they wait for one, and have it started."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from worker.errors import LeftError, QueueFullError, UnavailableError
from worker.fleet.front.call import ClientCall
from worker.fleet.roster import Roster
from worker.fleet.routing import Member

# Of one model. Behind them the queue of its first replica begins.
ROOM = 64
# For a process to start and a large model to load from a slow disk.
PATIENCE_S = 600.0
# A stream says something this often while it waits, as a worker's own does.
PULSE_S = 1.0
_LOOK_S = 0.05


class WaitingRoom:
    """For all models of one gateway."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._counts: Counter[str] = Counter()

    async def members(self, call: ClientCall, model: str) -> tuple[Member, ...]:
        """The model's replicas, at least one. The client of a stream is told each second that
        there is none yet.

        Raises UnavailableError for a model that nothing wakes, and after PATIENCE_S; QueueFullError
        where too many wait, LeftError when the client has gone.
        """
        members = self._roster.members(model)
        if members:
            return members
        wake = self._roster.wakes.get(model)
        if wake is None:
            raise UnavailableError(f"No replica of {model} is ready.", code="loading_replicas")
        if self._counts[model] >= ROOM:
            raise QueueFullError(f"{ROOM} requests wait already for {model} to start.")
        self._counts[model] += 1
        leaving = asyncio.ensure_future(call.left())
        began = time.monotonic()
        told = began
        try:
            while not (members := self._roster.members(model)):
                wake()
                await asyncio.wait({leaving}, timeout=_LOOK_S)
                now = time.monotonic()
                if leaving.done():
                    raise LeftError("The client left before the model was there.")
                if now - began > PATIENCE_S:
                    raise UnavailableError(
                        f"{model} has not started in {PATIENCE_S:.0f} s.", code="loading_replicas"
                    )
                if now - told >= PULSE_S:
                    told = now
                    await call.say_waiting()
            return members
        finally:
            self._counts[model] -= 1
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
