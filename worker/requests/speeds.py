"""How fast prompts were read and tokens written over the last minutes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

from worker.requests.views import Speed

if TYPE_CHECKING:  # the gate answers before there is an engine
    from worker.engine.stats import EngineSnapshot
    from worker.engine.thread import EngineThread

PERIOD_S = 5.0
MAX_POINTS = 120  # ten minutes


class Speeds:
    """Two sums of the engine, read each PERIOD_S. points: oldest first"""

    def __init__(self) -> None:
        self.points: deque[Speed] = deque(maxlen=MAX_POINTS)
        self._last = (0.0, 0, 0)

    def start(self, engine: EngineThread) -> None:
        """Begin; on the event loop, for as long as it runs."""
        loop = asyncio.get_running_loop()

        def again() -> None:
            self.note(time.monotonic(), engine.snapshot)
            loop.call_later(PERIOD_S, again)

        self._last = (time.monotonic(), *sums_of(engine.snapshot))
        loop.call_later(PERIOD_S, again)

    def note(self, now: float, snapshot: EngineSnapshot) -> None:
        then, *before = self._last
        after = sums_of(snapshot)
        span = now - then
        read, written = (max(0, b - a) / span for a, b in zip(before, after, strict=True))
        self.points.append((int(time.time()), round(read, 1), round(written, 1)))
        self._last = (now, *after)


def sums_of(snapshot: EngineSnapshot) -> tuple[int, int]:
    """Prompt tokens computed and tokens sampled since the start, also for those that run."""
    return snapshot.stats.computed_tokens, snapshot.stats.sampled_tokens
