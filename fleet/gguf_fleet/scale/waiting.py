"""Requests for a model that has no replica now: they wait for one, and have it started."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from gguf_fleet.errors import RefusedError
from gguf_fleet.front.call import ClientCall
from gguf_fleet.roster import Roster
from gguf_fleet.routing import Member

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

        Raises RefusedError for a model that nothing wakes, after PATIENCE_S, and where too many
        wait.
        """
        members = self._roster.members(model)
        if members:
            return members
        wake = self._roster.wakes.get(model)
        if wake is None:
            raise RefusedError(503, f"No replica of {model} is ready.", code="loading_replicas")
        if self._counts[model] >= ROOM:
            raise RefusedError(429, f"{ROOM} requests wait already for {model} to start.")
        self._counts[model] += 1
        began = time.monotonic()
        told = began
        try:
            while not (members := self._roster.members(model)):
                wake()
                await asyncio.sleep(_LOOK_S)
                now = time.monotonic()
                if now - began > PATIENCE_S:
                    raise RefusedError(
                        503,
                        f"{model} has not started in {PATIENCE_S:.0f} s.",
                        code="loading_replicas",
                    )
                if now - told >= PULSE_S:
                    told = now
                    await call.say_waiting()
            return members
        finally:
            self._counts[model] -= 1
