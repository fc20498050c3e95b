"""Is the engine's thread alive: one look a second, from the event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

# A thread that neither ticks nor computes for this long hangs. Ticks come every second when idle
# and after every step, however long: a step on the CPU uses CPU time all the while, and a hanging
# one uses none. On a GPU the thread sleeps during a step, and so it may on systems that do not tell
# a thread's CPU time; there only a step that takes a minute is taken for a hanging one.
STALLED_AFTER_S = 10.0
STALLED_AFTER_SLEEPING_S = 60.0
# Silent for half of that: not well, but it may be a long step.
DEGRADED_SHARE = 0.5
# From being stalled until the worker gives up: health polls and a heartbeat can say so meanwhile.
GIVE_UP_AFTER_S = 3.0
PERIOD_S = 1.0
_MIN_CPU_S = 0.001


class WatchedEngine(Protocol):
    """tick: time.monotonic() of the last sign of life; cpu_seconds: CPU time used, or None."""

    tick: float

    @property
    def cpu_seconds(self) -> float | None:
        """See above."""
        ...


class Watchdog:
    """Counts the seconds for which nothing was seen of a thread.

    silent_s   that count: only time in which this watchdog itself was running, so that a process
               that was stopped for an hour and goes on is not taken for one that hangs
    """

    def __init__(self, watched: WatchedEngine, *, sleeps: bool) -> None:
        """sleeps: the thread uses no CPU time while a step is computed (on a GPU)."""
        self._watched = watched
        self._sleeps = sleeps
        self.silent_s = 0.0
        self._looked = time.monotonic()
        self._tick: float = watched.tick
        self._cpu = watched.cpu_seconds or 0.0

    @property
    def limit_s(self) -> float:
        """Silence that means that the thread hangs."""
        sleeps = self._sleeps or self._watched.cpu_seconds is None
        return STALLED_AFTER_SLEEPING_S if sleeps else STALLED_AFTER_S

    @property
    def is_stalled(self) -> bool:
        """Whether the thread hangs."""
        return self.silent_s >= self.limit_s

    @property
    def is_late(self) -> bool:
        """Whether the thread has been silent for unusually long."""
        return self.silent_s >= self.limit_s * DEGRADED_SHARE

    def look(self) -> None:
        """Take notice of the thread's signs of life."""
        now = time.monotonic()
        tick = self._watched.tick
        cpu = self._watched.cpu_seconds or 0.0
        if tick != self._tick or cpu - self._cpu >= _MIN_CPU_S:
            self._tick, self._cpu, self.silent_s = tick, cpu, 0.0
        else:
            self.silent_s += min(now - self._looked, 2 * PERIOD_S)
        self._looked = now

    async def until_hopeless(self) -> None:
        """Look once a second; return when a stalled thread did not come back."""
        while self.silent_s < self.limit_s + GIVE_UP_AFTER_S:
            await asyncio.sleep(PERIOD_S)
            self.look()
