"""How many replicas a model needs: figures of its workers in, a number out.

    figures, each second -> needed now -> up after UP_S, down after `idle` -> wanted

Nothing here knows Ray or a clock: `benchmarks.simulation` runs the same functions.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection

import msgspec

# Of the cells of all replicas; what is beyond is put back into the queue sooner or later.
FULL_CELLS = 0.9
# A need that is over sooner was a gust: the queue carries it.
UP_S = 2.0


class ReplicaFigures(msgspec.Struct, frozen=True):
    """What one replica's worker has to do.

    running      sequences that run
    waiting      sequences that wait for a slot or for cells
    cells        share of its KV cells that running sequences take, 0 to 1
    first_token  mean seconds to the first token, of late; 0: nobody got one
    """

    running: float = 0.0
    waiting: float = 0.0
    cells: float = 0.0
    first_token: float = 0.0


class ScaleBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says of a model's replicas.

    least, most  how many there may be
    idle         seconds for which fewer must have been enough before one goes
    first_token  seconds to the first token that are too many
    slots        sequences that one replica runs at once
    """

    least: int
    most: int
    idle: float
    first_token: float
    slots: int


def replicas_needed(figures: Collection[ReplicaFigures], bounds: ScaleBounds, wanted: int) -> int:
    """How many replicas this load needs, within the bounds.

    wanted  how many there are to be at present; some of them may not report yet

    Each request needs a slot, and the sequences that run need cells: both are sums over all
    replicas, so they do not change while new ones start. A first token that is late needs one
    more, if all report and some have company: a replica with one request would not be faster.
    """
    busy = sum(each.running + each.waiting for each in figures)
    number = max(
        math.ceil(busy / bounds.slots), math.ceil(sum(each.cells for each in figures) / FULL_CELLS)
    )
    late = [each.first_token for each in figures if each.first_token > 0]
    if late and len(figures) >= wanted and busy > wanted:
        number = max(number, wanted + (sum(late) / len(late) > bounds.first_token))
    return max(bounds.least, min(bounds.most, number))


class ReplicaCount:
    """The number wanted of one model, kept steady.

    Up once more was needed for UP_S without a break, to at most twice as many. Down to the most
    that was needed in the last `idle` seconds, once it has watched that number for so long. A model
    of which nothing reports yet has no time to be idle.
    """

    def __init__(self, bounds: ScaleBounds) -> None:
        self._bounds = bounds
        self._more_since: float | None = None
        self._began: float | None = None  # to watch a number of replicas of which one reports
        self._watched = 0
        # (when, needed) of the last `idle` seconds; of these only what is larger than all after it.
        self._peaks: deque[tuple[float, int]] = deque()

    def decide(self, now: float, figures: Collection[ReplicaFigures], wanted: int) -> int:
        """The number from now on.

        now     seconds by any clock that does not go back
        wanted  the number until now
        """
        number = replicas_needed(figures, self._bounds, wanted)
        peak = self._peak(now, number)
        if number > wanted:
            if self._more_since is None:
                self._more_since = now
            if now - self._more_since >= UP_S:
                self._more_since = None
                return min(number, max(1, 2 * wanted))
            return wanted
        self._more_since = None
        if not figures:
            self._began = None
        elif self._began is None or wanted > self._watched:
            self._began = now
        self._watched = wanted
        is_seen = self._began is not None and now - self._began >= self._bounds.idle
        return max(peak, self._bounds.least) if is_seen and peak < wanted else wanted

    def _peak(self, now: float, number: int) -> int:
        """The most that was needed in the last `idle` seconds, this included."""
        while self._peaks and self._peaks[-1][1] <= number:
            self._peaks.pop()
        self._peaks.append((now, number))
        while self._peaks[0][0] < now - self._bounds.idle:
            self._peaks.popleft()
        return self._peaks[0][1]
