"""The model is put away while nobody asks, and comes back for who does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from worker.errors import UnavailableError

# Seconds between two looks whether what runs has ended.
_LOOK_S = 0.02


class Sleeper:
    """For the event loop's thread.

    is_sleeping  whether the model's memory was given back
    timer        until it falls asleep by itself
    """

    def __init__(
        self,
        idle_s: float,
        is_quiet: Callable[[], bool],
        put_away: Callable[[], Awaitable[object]],
        bring_back: Callable[[], Awaitable[object]],
    ) -> None:
        """idle_s: seconds without a request after which it sleeps by itself; 0 or less: never
        is_quiet: nothing uses the model but the requests that are counted here
        """
        self.is_sleeping = False
        self._idle_s = idle_s
        self._is_quiet, self._put_away, self._bring_back = is_quiet, put_away, bring_back
        self._num_users = 0
        self._is_open = True  # requests need not wait
        self._turn = asyncio.Lock()
        self.timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self._waking: asyncio.Future[None] | None = None
        self._rest()

    async def come(self) -> None:
        """A request begins: wait until the model is there, which stays until `go`.

        Raises UnavailableError where it does not come back.
        """
        while not self._is_open:
            await self.wake()
        self._num_users += 1

    def go(self) -> None:
        """The request has ended."""
        self._num_users -= 1
        if not self._num_users and self._idle_s > 0:
            self._rest()

    async def sleep(self) -> None:
        """Put the model away once all that runs has ended; who comes meanwhile waits, and wakes it.

        Raises UnavailableError where the worker stops.
        """
        await self._whole(self._sleep())

    async def wake(self) -> None:
        """Bring the model back. Raises UnavailableError where that fails, for all that wait."""
        if self._waking is None or self._waking.done():
            self._waking = self._begin(self._wake())
        await asyncio.shield(self._waking)

    async def _whole(self, change: Coroutine[Any, Any, None]) -> None:
        """Await a change, which is not left half done where nobody waits for it any more."""
        await asyncio.shield(self._begin(change))

    def _begin(self, change: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(change)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _sleep(self) -> None:
        async with self._turn:
            if self.is_sleeping:
                return
            self._is_open = False
            try:
                while self._num_users or not self._is_quiet():
                    await asyncio.sleep(_LOOK_S)
                await self._put_away()
                self.is_sleeping = True
            finally:
                self._is_open = not self.is_sleeping

    async def _wake(self) -> None:
        async with self._turn:
            if self.is_sleeping:
                await self._bring_back()
                self.is_sleeping, self._is_open = False, True
                self._rest()

    def _rest(self) -> None:
        """From now on nobody asks."""
        if self.timer is not None:
            self.timer.cancel()
        if self._idle_s > 0:
            self.timer = asyncio.get_running_loop().call_later(self._idle_s, self._doze)

    def _doze(self) -> None:
        if self._num_users or not self._is_quiet():
            self._rest()
        elif self._is_open:
            self._begin(self._by_itself())

    async def _by_itself(self) -> None:
        with contextlib.suppress(UnavailableError):
            await self._sleep()
