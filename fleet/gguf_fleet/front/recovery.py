"""Replicas that failed lately: asked last, until their worker says that it is well again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Set

from gguf_fleet.routing import Member

_LOOK_S = 0.2

# Whether a replica's worker is ready for requests.
IsWell = Callable[[Member], Awaitable[bool]]


class Recovery:
    """Asks them for their health, so that no request has to find out; for the event loop's thread.

    A worker that is started again needs a second, and a machine that has gone answers nobody: a
    request would wait for its connection until that is given up.
    """

    def __init__(self, is_well: IsWell) -> None:
        self._is_well = is_well
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def failing(self) -> Set[str]:
        return self._tasks.keys()

    def note_failure(self, member: Member) -> None:
        """It could not be reached just now, or is not ready."""
        if member.id not in self._tasks:
            self._tasks[member.id] = asyncio.create_task(self._watch(member))

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _watch(self, member: Member) -> None:
        try:
            await asyncio.sleep(_LOOK_S)
            while not await self._is_well(member):
                await asyncio.sleep(_LOOK_S)
        finally:
            del self._tasks[member.id]
