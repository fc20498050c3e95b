"""Workers that owe an answer and say nothing: asked for their health, and given up.

A process that is stopped, or a machine that has gone, closes no connection. Its streams would stand
still until Ray has noticed, and requests would go on being sent there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from worker.fleet.front.connection import WorkerConnection
from worker.fleet.routing import Member

# A stream that waits says something each second, a whole answer nothing until it is there.
QUIET_S = 1.0
# As long as a replica waits for its worker's heartbeats.
SILENCE_S = 5.0
_LOOK_S = 0.5


class _Debt:
    """What one worker owes. heard: when it said something last, or was asked while it owed
    nothing, by the event loop's clock"""

    def __init__(self, now: float) -> None:
        self.heard = now
        self.connections: set[WorkerConnection] = set()


class Owing:
    """Requests that workers have not answered to their end; for the event loop's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._debts: dict[Member, _Debt] = {}

    def begin(self, member: Member, connection: WorkerConnection) -> None:
        """A request goes out on this connection."""
        debt = self._debts.setdefault(member, _Debt(self._loop.time()))
        debt.connections.add(connection)

    def end(self, member: Member, connection: WorkerConnection) -> None:
        """It was answered, or nobody waits any more. To be told once more does nothing."""
        debt = self._debts.get(member)
        if debt is None:
            return
        debt.heard = max(debt.heard, connection.heard)
        debt.connections.discard(connection)
        if not debt.connections:
            del self._debts[member]

    @property
    def members(self) -> list[Member]:
        """Who owes something."""
        return list(self._debts)

    def silence_of(self, member: Member) -> float:
        """Seconds since it said something, on whichever connection; 0 where it owes nothing."""
        debt = self._debts.get(member)
        if debt is None:
            return 0.0
        debt.heard = max(debt.heard, *(each.heard for each in debt.connections))
        return self._loop.time() - debt.heard

    def note_answer(self, member: Member) -> None:
        """It has just said something."""
        if (debt := self._debts.get(member)) is not None:
            debt.heard = self._loop.time()

    def give_up(self, member: Member) -> None:
        """Close all on which it owes something."""
        debt = self._debts.get(member)
        for connection in list(debt.connections) if debt is not None else ():
            connection.give_up()


class Pulse:
    """Looks after those who owe something."""

    def __init__(
        self,
        owing: Owing,
        answers: Callable[[Member], Awaitable[bool]],
        note_failure: Callable[[Member], None],
    ) -> None:
        """answers: whether a worker says anything when it is asked

        note_failure: it is told of who does not, so that others are asked first
        """
        self._owing = owing
        self._answers = answers
        self._note_failure = note_failure
        self._asking: dict[Member, asyncio.Task[None]] = {}
        self._task = asyncio.create_task(self._watch())

    def close(self) -> None:
        """Look after nobody any more."""
        for task in (self._task, *self._asking.values()):
            task.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for member in self._owing.members:
                if member not in self._asking and self._owing.silence_of(member) > QUIET_S:
                    self._asking[member] = asyncio.create_task(self._ask(member))

    async def _ask(self, member: Member) -> None:
        try:
            if await self._answers(member):
                self._owing.note_answer(member)
                return
            self._note_failure(member)
            if self._owing.silence_of(member) > SILENCE_S:
                self._owing.give_up(member)
        finally:
            del self._asking[member]
