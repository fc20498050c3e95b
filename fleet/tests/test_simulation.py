"""The simulated fleet: its workers compute what was recorded, and a seed repeats a run."""

from __future__ import annotations

import random

import pytest

from benchmarks.simulation.__main__ import compared
from benchmarks.simulation.clock import EventClock
from benchmarks.simulation.costs import RecordedCosts, read_costs
from benchmarks.simulation.fleet import Scaling, SimulatedFleet, ways
from benchmarks.simulation.load import LOADS
from benchmarks.simulation.worker import (
    KEPT,
    SLOTS,
    SimulatedRequest,
    SimulatedWorker,
)
from gguf_fleet.routing import Member
from gguf_fleet.scale.count import ReplicaCount, ScaleBounds

COSTS = RecordedCosts({1: 0.01, 2: 0.015, 4: 0.02, 8: 0.03}, alone=0.001, beside=0.002)


def request(name: str, prompt: int, answer: int, asked: float = 0.0) -> SimulatedRequest:
    """A request of that conversation."""
    return SimulatedRequest(0, ((name, prompt),), prompt, answer, asked)


def worker() -> SimulatedWorker:
    """One that has nothing to do."""
    return SimulatedWorker(Member("a", "", "", SLOTS, 72, "n"), COSTS)


def finish(made: SimulatedWorker) -> tuple[float, list[SimulatedRequest]]:
    """Run it until it is idle: when that is, and what ended."""
    now, ended = 0.0, list[SimulatedRequest]()
    while (due := made.next_event()) is not None:
        now = due
        ended += made.advance(now)
    return now, ended


def test_one_request_takes_what_was_recorded() -> None:
    """Its prompt row by row, then a step for each further token."""
    made, job = worker(), request("a", 500, 101)
    made.take(job, 0.0)
    now, ended = finish(made)
    assert ended == [job]
    assert job.first == pytest.approx(500 * COSTS.alone)
    assert now == pytest.approx(500 * COSTS.alone + 100 * COSTS.decode[1])


def test_two_that_write_share_their_steps() -> None:
    """A step of two rows is cheaper than two steps, and dearer than one."""
    made = worker()
    jobs = [request(name, 1, 101) for name in "ab"]
    for job in jobs:
        made.take(job, 0.0)
    now, ended = finish(made)
    assert len(ended) == 2
    assert 100 * COSTS.decode[1] < now < 200 * COSTS.decode[1]
    assert now == pytest.approx(100 * COSTS.decode[2], rel=0.05)


def test_a_conversation_is_found_again() -> None:
    """All that was read and written before; until others push it out."""
    made = worker()
    made.take(request("a", 500, 100), 0.0)
    now, _ = finish(made)
    again = request("a", 650, 10, now)
    made.take(again, now)
    assert again.found == 600
    for number in range(KEPT // 1000 + 1):
        made.take(request(str(number), 1000, 2), now)
    now, _ = finish(made)
    late = request("a", 700, 10, now)
    made.take(late, now)
    assert late.found == 0


def test_a_seed_repeats_a_run() -> None:
    """All figures but the CPU time, for each way; another seed is another run."""
    costs = read_costs()["demo"]

    def tallies(seed: int) -> list[object]:
        found = compared(costs, LOADS[0], models=1, replicas=3, users=20, seed=seed)
        return [tally for tally, _ in found.values()]

    assert tallies(1) == tallies(1)
    assert tallies(1) != tallies(2)


def test_affinity_finds_more() -> None:
    """Where there is something to find."""
    found = compared(read_costs()["125M"], LOADS[0], models=1, replicas=8, users=40, seed=1)
    hits = {way: tally.found / tally.prompt for way, (tally, _) in found.items()}
    assert hits["prefix"] > hits["round robin"] > 0
    assert hits["prefix"] > hits["power of two"] > 0


def test_nothing_is_lost_when_replicas_go() -> None:
    """Every request that was routed is answered, also by those that drain."""
    clock = EventClock()
    fleet = SimulatedFleet(clock, ways(random.Random(1))["prefix"], COSTS, LOADS[0], 1)
    fleet.add_workers(1)
    bounds = ScaleBounds(least=1, most=6, idle=20, first_token=5, slots=SLOTS)
    scaling = Scaling(fleet, clock, ReplicaCount(bounds), 1, 5.0)
    fleet.set_users(60)
    clock.run(120)
    fleet.set_users(0)
    clock.run(400)
    numbers = [wanted for _, wanted, _ in scaling.history]
    assert max(numbers) > 1
    assert numbers[-1] == 1
    assert len(fleet.workers) == 1
    assert fleet.tally.routed == len(fleet.tally.firsts) > 100
