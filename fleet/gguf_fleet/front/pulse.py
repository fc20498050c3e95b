"""Workers that owe an answer and say nothing: asked for their health, and given up.

A process that is stopped, or a machine that has gone, closes no connection. Its streams would stand
still until Ray has noticed, and requests would go on being sent there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from gguf_fleet.routing import Member

T = TypeVar("T")

# A stream that waits says something each second, a whole answer nothing until it is there.
QUIET_S = 1.0
# As long as a replica waits for its worker's heartbeats.
SILENCE_S = 5.0
_LOOK_S = 0.5


class Debt:
    """One request that a worker has not answered to its end.

    heard  when the worker said something on it last, by the event loop's clock
    close  ends its connection, once the answer has begun
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waits: asyncio.Timeout | None = None
        self.heard = 0.0
        self.close: Callable[[], None] | None = None

    async def wait(self, work: Awaitable[T]) -> T:
        """What the worker says, until the answer has begun. Raises TimeoutError if given up."""
        async with asyncio.timeout(None) as self._waits:
            said = await work
        self._waits = None
        self.note_answer()
        return said

    def note_answer(self) -> None:
        self.heard = self._loop.time()

    def give_up(self) -> None:
        if self._waits is not None and not self._waits.expired():
            self._waits.reschedule(self._loop.time())
        elif self.close is not None:
            self.close()


class Owing:
    """Requests that workers have not answered to their end; for the event loop's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._debts: dict[Member, set[Debt]] = {}
        # When each of them said something last, or was asked while it owed nothing.
        self._heard: dict[Member, float] = {}

    @contextmanager
    def owe(self, member: Member) -> Generator[Debt]:
        """Inside, the worker owes the answer to one request more."""
        debt = Debt(self._loop)
        self._heard.setdefault(member, self._loop.time())
        debts = self._debts.setdefault(member, set())
        debts.add(debt)
        try:
            yield debt
        finally:
            self._heard[member] = max(self._heard[member], debt.heard)
            debts.discard(debt)
            if not debts:
                del self._debts[member], self._heard[member]

    @property
    def members(self) -> list[Member]:
        return list(self._debts)

    def silence_of(self, member: Member) -> float:
        """Seconds since it said something, on whichever connection; 0 where it owes nothing."""
        debts = self._debts.get(member)
        if debts is None:
            return 0.0
        return self._loop.time() - max(self._heard[member], *(each.heard for each in debts))

    def note_answer(self, member: Member) -> None:
        if member in self._heard:
            self._heard[member] = self._loop.time()

    def give_up(self, member: Member) -> None:
        for debt in self._debts.get(member, ()):
            debt.give_up()


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
