"""Events in the order of their time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class EventClock:
    """Runs what is due, one after the other; `now` in seconds.

    Of two that are due at the same time the one that was set first runs first, so a run depends on
    its seed alone.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Do that then."""
        heapq.heappush(self._due, (max(when, self.now), next(self._count), do))

    def run(self, until: float) -> None:
        """Everything that is due by then."""
        while self._due and self._due[0][0] <= until:
            self.now, _, do = heapq.heappop(self._due)
            do()
        self.now = until
