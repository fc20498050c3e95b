"""One model of a simulated fleet: users, a gateway that routes, workers that come and go."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.simulation.clock import EventClock
from benchmarks.simulation.costs import RecordedCosts
from benchmarks.simulation.load import SimulatedUser, UserLoad
from benchmarks.simulation.worker import QUEUE, SLOTS, SimulatedRequest, SimulatedWorker
from gguf_fleet.routing import Homes, Member
from gguf_fleet.scale.count import ReplicaCount

#: A way to choose: members that can take one, requests of each, the prefix's key -> whom to ask
RoutingWay = Callable[[list[Member], Counter[str], bytes], list[Member]]
_RETRY_S = 1.0  # Retry-After of a full fleet


def ways(dice: random.Random) -> dict[str, RoutingWay]:
    """Prefix affinity with spill as the gateway does it, and what it is compared with."""
    turn = 0

    def in_turn(members: list[Member], loads: Counter[str], _key: bytes) -> list[Member]:
        nonlocal turn
        for _ in members:
            turn += 1
            member = members[turn % len(members)]
            if loads[member.id] < member.limit:
                return [member]
        return []

    def of_two(members: list[Member], loads: Counter[str], _key: bytes) -> list[Member]:
        two = dice.sample(members, 2) if len(members) > 1 else members
        best = min(two, key=lambda member: loads[member.id])
        return [best] if loads[best.id] < best.limit else []

    return {"prefix": Homes().order, "round robin": in_turn, "power of two": of_two}


@dataclass
class RunTally:
    """What came of a run.

    routed   requests that a worker took
    firsts   seconds to each first token, of those that ended
    found    tokens of prompts that a worker had computed before
    refused  times that all replicas were full, and the client came again a second later
    """

    routed: int = 0
    firsts: list[float] = field(default_factory=list[float])
    tokens: int = 0
    prompt: int = 0
    found: int = 0
    refused: int = 0


class SimulatedFleet:
    """A model's users, gateway and replicas on one clock."""

    def __init__(
        self, clock: EventClock, way: RoutingWay, costs: RecordedCosts, load: UserLoad, seed: int
    ) -> None:
        self.tally = RunTally()
        self.workers: dict[str, SimulatedWorker] = {}
        self._clock = clock
        self._way = way
        self._costs = costs
        self._load = load
        self._seed = seed
        self._users: dict[int, SimulatedUser] = {}
        self._active = 0
        self._counts: Counter[str] = Counter()
        self._made = 0

    def add_workers(self, count: int) -> None:
        """So many replicas, ready now."""
        for _ in range(count):
            self._made += 1
            name = f"r{self._made}"
            member = Member(name, "", "", SLOTS, SLOTS + QUEUE, f"n{self._made % 100}")
            self.workers[name] = SimulatedWorker(member, self._costs)

    def set_users(self, count: int) -> None:
        """So many users go on from now on; who is one too many stops after its answer."""
        self._active = count
        for number in range(count):
            if number in self._users:
                continue
            self._users[number] = SimulatedUser(
                number, self._load, random.Random(f"{self._seed} {number}")
            )
            self._go_on(number)

    def drain(self, name: str) -> None:
        """The replica gets nothing more, and leaves once it is idle."""
        worker = self.workers[name]
        worker.is_leaving = True
        if worker.is_idle:
            del self.workers[name]

    def _go_on(self, number: int) -> None:
        user = self._users[number]
        self._clock.at(self._clock.now + user.pause(), lambda: self._ask(number))

    def _ask(self, number: int) -> None:
        if number >= self._active:
            del self._users[number]
            return
        self._route(*self._users[number].ask(self._clock.now))

    def _route(self, job: SimulatedRequest, key: bytes) -> None:
        members = [each.member for each in self.workers.values() if not each.is_leaving]
        ranked = self._way(members, self._counts, key) if members else []
        if not ranked:
            self.tally.refused += 1
            self._clock.at(self._clock.now + _RETRY_S, lambda: self._route(job, key))
            return
        worker = self.workers[ranked[0].id]
        self._counts[ranked[0].id] += 1
        self.tally.routed += 1
        self._settle(worker)
        worker.take(job, self._clock.now)
        self._watch(worker)

    def _watch(self, worker: SimulatedWorker) -> None:
        """Come back when something ends there; what was set before counts no more."""
        worker.version += 1
        version, when = worker.version, worker.next_event()

        def come_back() -> None:
            if worker.version == version:
                self._settle(worker)
                self._watch(worker)

        if when is not None:
            self._clock.at(when, come_back)

    def _settle(self, worker: SimulatedWorker) -> None:
        for job in worker.advance(self._clock.now):
            self._counts[worker.member.id] -= 1
            self.tally.firsts.append(job.first - job.asked)
            self.tally.tokens += job.answer
            self.tally.prompt += job.prompt
            self.tally.found += job.found
            self._go_on(job.user)
        if worker.is_leaving and worker.is_idle:
            self.workers.pop(worker.member.id, None)


class Scaling:
    """Asks the real `ReplicaCount` each second, and carries out what it says."""

    def __init__(
        self, fleet: SimulatedFleet, clock: EventClock, count: ReplicaCount, wanted: int,
        start: float,
    ) -> None:  # fmt: skip
        """start: seconds until a new replica is ready"""
        self.history: list[tuple[float, int, int]] = []
        self.wanted = wanted
        self._fleet, self._clock, self._count, self._start = fleet, clock, count, start
        clock.at(clock.now + 1, self._look)

    def _look(self) -> None:
        now = self._clock.now
        there = [each for each in self._fleet.workers.values() if not each.is_leaving]
        figures = [each.figures() for each in there]
        number = self._count.decide(now, figures, self.wanted)
        for _ in range(number - self.wanted):
            self._clock.at(now + self._start, lambda: self._fleet.add_workers(1))
        for each in there[: max(0, self.wanted - number)]:
            self._fleet.drain(each.member.id)
        self.wanted = number
        self.history.append((now, number, len(there)))
        self._clock.at(now + 1, self._look)
