"""A worker in a simulation: slots, a queue, prompts read in turn beside those that write.

Between two events its sequences advance evenly, so a step need not be an event of its own: with n
that write and a prompt that is read, a step takes what was recorded for them, each that writes
gets a token of it and the prompt a chunk.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from benchmarks.simulation.costs import RecordedCosts
from gguf_fleet.routing import Member
from gguf_fleet.scale.count import ReplicaFigures

SLOTS = 8
QUEUE = 64
CELLS = 32_768
#: Tokens of ended sequences that a worker keeps, beside its cells: 100 conversations of 2,000.
KEPT = 200_000


@dataclass(slots=True)
class SimulatedRequest:
    """A request on its way.

    user     who asked
    tree     (name, length) of the beginnings that its prompt has: instructions, then conversation
    prompt   its tokens
    answer   tokens that it gets
    unread   tokens of the prompt that are not computed
    """

    user: int
    tree: tuple[tuple[str, int], ...]
    prompt: int
    answer: int
    asked: float
    unread: float = 0.0
    unwritten: float = 0.0
    found: int = 0
    first: float = 0.0


@dataclass(slots=True)
class SimulatedWorker:
    """One replica; `member` is what routing knows of it."""

    member: Member
    costs: RecordedCosts
    version: int = 0
    is_leaving: bool = False
    waiting: deque[SimulatedRequest] = field(default_factory=deque[SimulatedRequest])
    reading: deque[SimulatedRequest] = field(default_factory=deque[SimulatedRequest])
    writing: list[SimulatedRequest] = field(default_factory=list[SimulatedRequest])
    #: first tokens since the last figures: seconds and number
    firsts: list[float] = field(default_factory=list[float])
    _kept: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])
    _sum: int = 0
    _at: float = 0.0
    _rates: dict[int, tuple[float, int]] = field(default_factory=dict[int, tuple[float, int]])

    def take(self, job: SimulatedRequest, now: float) -> None:
        """A request comes."""
        self.advance(now)
        self.waiting.append(job)
        self._admit()

    def advance(self, now: float) -> list[SimulatedRequest]:
        """Compute until now; those that ended."""
        elapsed, self._at = now - self._at, now
        step, chunk = self._rate()
        steps = elapsed / step if step else 0.0
        for job in self.writing:
            job.unwritten -= steps
        if self.reading:
            self.reading[0].unread -= steps * chunk
        ended = [job for job in self.writing if job.unwritten <= 1e-6]
        if ended:
            self.writing = [job for job in self.writing if job.unwritten > 1e-6]
            for job in ended:
                self._keep(job)
        if self.reading and self.reading[0].unread <= 1e-6:
            job = self.reading.popleft()
            job.first, job.unwritten = now, job.answer - 1
            self.firsts.append(now - job.asked)
            self.writing.append(job)
        self._admit()
        return ended

    def next_event(self) -> float | None:
        """When something ends next; None: nothing runs."""
        step, chunk = self._rate()
        if not step:
            return None
        steps = min((job.unwritten for job in self.writing), default=float("inf"))
        if self.reading:
            steps = min(steps, self.reading[0].unread / chunk)
        return self._at + max(steps, 0.0) * step

    def figures(self) -> ReplicaFigures:
        """What the policy is told; begins a new mean of the first tokens."""
        firsts, self.firsts = self.firsts, []
        used = sum(job.prompt + job.answer - job.unwritten for job in self.writing)
        return ReplicaFigures(
            running=len(self.writing) + len(self.reading),
            waiting=len(self.waiting),
            cells=min(1.0, (used + sum(job.prompt for job in self.reading)) / CELLS),
            first_token=sum(firsts) / len(firsts) if firsts else 0.0,
        )

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do."""
        return not (self.waiting or self.reading or self.writing)

    def _rate(self) -> tuple[float, int]:
        """Seconds of a step, and rows of the prompt in it."""
        key = len(self.writing) * 2 + bool(self.reading)
        found = self._rates.get(key)
        if found is None:
            rows = len(self.writing)
            found = self.costs.step(rows) if rows else 0.0, 0
            if self.reading:
                chunk = self.costs.chunk(rows)
                found = found[0] + chunk * (self.costs.beside if rows else self.costs.alone), chunk
            self._rates[key] = found
        return found

    def _admit(self) -> None:
        while self.waiting and len(self.writing) + len(self.reading) < SLOTS:
            job = self.waiting.popleft()
            running = {name for each in (*self.reading, *self.writing) for name, _ in each.tree}
            for name, length in job.tree:
                if name in running:  # it follows the one that reads it
                    job.found = max(job.found, length)
                elif name in self._kept:
                    job.found = max(job.found, min(length, self._kept[name]))
                    self._kept.move_to_end(name)
            job.found = min(job.found, job.prompt - 1)
            job.unread = job.prompt - job.found
            self.reading.append(job)

    def _keep(self, job: SimulatedRequest) -> None:
        """What was read and written is found again until others push it out."""
        *shared, (own, _) = job.tree
        for name, length in (*shared, (own, job.prompt + job.answer)):
            self._sum += length - self._kept.pop(name, 0)
            self._kept[name] = length
        while self._sum > KEPT:
            self._sum -= self._kept.popitem(last=False)[1]
