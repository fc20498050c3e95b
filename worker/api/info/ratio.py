"""Quotients of sums, as other servers tell them.

The tables of names are not here: only a scrape imports those, and a start does not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from worker.engine.stats import EngineSnapshot


class Ratio(msgspec.Struct, frozen=True):
    """What another server calls a quotient of sums of ours.

    parts  dividend and divisor, both since the start
    fresh  it is that of the time since the last scrape
    """

    name: str
    help: str
    parts: Callable[[EngineSnapshot], tuple[float, float]]
    fresh: bool = False


class Window:
    """Quotients since they were asked for last, as llama-server gives them."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def value(self, ratio: Ratio, engine: EngineSnapshot) -> float:
        """The quotient now; 0 where nothing was done."""
        above, below = ratio.parts(engine)
        if ratio.fresh:
            last = self._last.get(ratio.name, (0.0, 0.0))
            self._last[ratio.name] = above, below
            above, below = above - last[0], below - last[1]
        return above / below if below else 0.0
