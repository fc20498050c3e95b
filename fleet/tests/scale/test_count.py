"""How many replicas a load needs, and that their number is steady; no clock but the tests' own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from gguf_fleet.scale.count import (
    FULL_CELLS,
    UP_S,
    ReplicaCount,
    ReplicaFigures,
    ScaleBounds,
    replicas_needed,
)

BOUNDS = ScaleBounds(least=1, most=8, idle=60, first_token=5, slots=4)
FROM_ZERO = ScaleBounds(least=0, most=8, idle=60, first_token=5, slots=4)
QUIET = ReplicaFigures()


@pytest.mark.parametrize(
    ("figures", "number"),
    [
        ([], 1),
        ([QUIET], 1),
        ([ReplicaFigures(running=4)], 1),  # full is not too full
        ([ReplicaFigures(running=4, waiting=1)], 2),
        ([ReplicaFigures(running=4, waiting=9), ReplicaFigures(running=4)], 5),
        ([ReplicaFigures(running=4, waiting=400)], 8),
        ([ReplicaFigures(running=2, cells=FULL_CELLS + 0.01)], 2),
        ([ReplicaFigures(cells=1), ReplicaFigures(cells=1)], 3),
    ],
)
def test_slots_and_cells(figures: list[ReplicaFigures], number: int) -> None:
    """Each request needs a slot, each sequence its cells; never more than there may be."""
    assert replicas_needed(figures, BOUNDS, len(figures)) == number


def test_late_first_tokens() -> None:
    """One more where all report and have company; none for what a replica alone is slow at."""
    late = ReplicaFigures(running=2, first_token=6)
    assert replicas_needed([late], BOUNDS, 1) == 2
    assert replicas_needed([late, late], BOUNDS, 2) == 3
    assert replicas_needed([late], BOUNDS, 2) == 1  # the other one has not begun to report
    assert replicas_needed([ReplicaFigures(running=1, first_token=60)], BOUNDS, 1) == 1
    assert replicas_needed([ReplicaFigures(running=2, first_token=4)], BOUNDS, 1) == 1


def test_nothing_to_do_needs_nobody() -> None:
    """From zero and back."""
    assert replicas_needed([], FROM_ZERO, 0) == 0
    assert replicas_needed([QUIET], FROM_ZERO, 1) == 0
    assert replicas_needed([ReplicaFigures(running=1)], FROM_ZERO, 1) == 1


@dataclasses.dataclass
class Fleet:
    """A model whose number of replicas is what its count says; each looks at the same share."""

    count: ReplicaCount
    wanted: int = 1
    now: float = 1000.0

    def run(self, seconds: float, load: Callable[[float], float] = lambda _: 0.0) -> list[int]:
        """So long under a load of requests at a time; the numbers, one a second, as they change."""
        numbers = [self.wanted]
        end = self.now + seconds
        while self.now < end:
            self.now += 1
            share = load(self.now) / max(1, self.wanted)
            figures = [
                ReplicaFigures(running=min(4, share), waiting=max(0, share - 4))
                for _ in range(self.wanted)
            ]
            self.wanted = self.count.decide(self.now, figures, self.wanted)
            if self.wanted != numbers[-1]:
                numbers.append(self.wanted)
        return numbers


def test_it_grows_by_doubling() -> None:
    """A load that stays is met within a few decisions, and then the number stays."""
    assert Fleet(ReplicaCount(BOUNDS)).run(600, lambda _: 26) == [1, 2, 4, 7]


def test_a_gust_changes_nothing() -> None:
    """What is over within UP_S waits in the queue."""

    def gust(now: float) -> float:
        return 20 if now % 10 < UP_S else 1

    assert Fleet(ReplicaCount(BOUNDS)).run(300, gust) == [1]


def test_it_shrinks_to_what_was_needed_last() -> None:
    """Not before `idle` seconds in which fewer were enough, and to the peak of these."""
    fleet = Fleet(ReplicaCount(BOUNDS))
    fleet.run(30, lambda _: 26)
    began = fleet.now
    assert fleet.run(59, lambda now: 9 if now == began + 30 else 0) == [7]
    assert fleet.run(3) == [7, 3]
    assert fleet.run(60) == [3, 1]


def test_it_does_not_swing() -> None:
    """A load that comes each half minute keeps its replicas."""

    def wave(now: float) -> float:
        return 15 if now % 30 < 10 else 0

    fleet = Fleet(ReplicaCount(BOUNDS))
    assert fleet.run(1200, wave) == [1, 2, 4]


def test_to_zero() -> None:
    """A model that nobody asks for sleeps after `idle`; a new count watches for so long first."""
    fleet = Fleet(ReplicaCount(FROM_ZERO))
    assert fleet.run(59) == [1]
    assert fleet.run(3) == [1, 0]
    fleet.wanted = 1  # Ray has woken it
    assert fleet.run(30, lambda _: 1) == [1]


def test_what_starts_is_not_idle() -> None:
    """A model that was woken keeps its replica, however long it loads, and then for `idle`."""
    count = ReplicaCount(FROM_ZERO)
    assert [count.decide(now, [], 0) for now in (0, 100)] == [0, 0]
    assert {count.decide(now, [], 1) for now in range(101, 400)} == {1}
    assert {count.decide(now, [QUIET], 1) for now in range(400, 460)} == {1}
    assert count.decide(460, [QUIET], 1) == 0


def test_a_new_replica_is_watched_anew() -> None:
    """Ray may start one by itself; the time before does not count."""
    count = ReplicaCount(BOUNDS)
    assert {count.decide(now, [QUIET], 1) for now in range(100)} == {1}
    assert {count.decide(now, [QUIET], 2) for now in range(100, 160)} == {2}
    assert count.decide(160, [QUIET], 2) == 1
