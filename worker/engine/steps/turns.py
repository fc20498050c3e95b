"""Whose turn it is, where prompts with several keys are there: they cannot share a step."""

from __future__ import annotations

from collections.abc import Collection


class Turns:
    """Keys take turns, each one after all others have had theirs.

    To change from one to another costs a step more than its rows, so a turn lasts as long as
    nobody waits for more than `max_stall` seconds in all for the turns of the others, where the
    next step takes as long as the one before. A turn has one step at least.
    """

    def __init__(self, max_stall: float) -> None:
        self._max_stall = max_stall
        self._order: list[bytes] = []  # the one that has its turn, then who waits the longest
        self._began = 0.0
        self._asked = 0.0

    @property
    def num_others(self) -> int:
        """Keys that wait while another one has its turn."""
        return max(0, len(self._order) - 1)

    def next(self, keys: Collection[bytes], now: float) -> bytes:
        """Which of these keys, at least one, the coming step is for."""
        before = self._order[:1]
        self._order = [key for key in self._order if key in keys]
        self._order += [key for key in dict.fromkeys(keys) if key not in self._order]
        turn = self._max_stall / max(1, self.num_others)
        if self._order[:1] == before and now - self._began + (now - self._asked) > turn:
            self._order.append(self._order.pop(0))
        self._asked = now
        if self._order[:1] != before:
            self._began = now
        return self._order[0]
