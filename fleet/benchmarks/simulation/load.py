"""Who asks a simulated fleet: users who go on with conversations, or ask once."""

from __future__ import annotations

import random
from dataclasses import dataclass

from benchmarks.simulation.worker import SimulatedRequest


@dataclass(frozen=True)
class UserLoad:
    """What all users of a run do; tokens and seconds are means of exponential draws.

    instructions  texts with which conversations begin, and `shared` their length
    turns         of a conversation; the next one is another
    think         seconds between an answer and the next turn
    """

    name: str
    instructions: int
    shared: int
    turns: int
    asked: int = 60
    answer: int = 120
    think: float = 10.0


LOADS = (
    UserLoad("conversations over 50 instructions of 1,500 tokens", 50, 1500, 8),
    UserLoad("conversations that all begin with the same 1,500 tokens", 1, 1500, 8),
    UserLoad("single questions, nothing in common", 0, 0, 1, asked=300),
)


class SimulatedUser:
    """One user: a conversation after the other."""

    def __init__(self, number: int, load: UserLoad, dice: random.Random) -> None:
        self.number = number
        self._load = load
        self._dice = dice
        self._conversation = 0
        self._turn = 0
        self._length = 0
        self._instruction = 0
        # Users do not begin at the same turn.
        self._turns = dice.randint(1, load.turns)

    def ask(self, now: float) -> tuple[SimulatedRequest, bytes]:
        """The next request, and the key of its prefix, which all turns of a conversation share."""
        load = self._load
        if self._turn == 0:
            self._conversation += 1
            self._instruction = self._dice.randrange(load.instructions) if load.instructions else 0
            self._length = load.shared
        self._length += self._draw(load.asked)
        own = f"{self.number}.{self._conversation}"
        tree = ((f"i{self._instruction}", load.shared), (own, self._length))
        job = SimulatedRequest(
            user=self.number,
            tree=tree if load.shared else tree[1:],
            prompt=self._length,
            answer=self._draw(load.answer),
            asked=now,
        )
        self._length += job.answer
        self._turn += 1
        if self._turn >= self._turns:
            self._turn, self._turns = 0, load.turns
        return job, own.encode()

    def pause(self) -> float:
        """Seconds until the next request."""
        return self._dice.expovariate(1 / self._load.think)

    def _draw(self, mean: int) -> int:
        return 2 + int(self._dice.expovariate(1 / mean))
