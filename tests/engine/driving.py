"""An engine over a fake backend: what it is asked, and stepping it with its books checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from tests.support.fakes import FakeBackend, continuation
from worker.cache.store import Store
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sequence import Delta
from worker.engine.stats import Histogram, Stats

# What `FakeBackend` plays: full attention, sliding windows, recurrent states, hybrids.
KINDS: list[dict[str, Any]] = [
    {},
    {"window": 2},
    {"window": 8},
    {"cuts_tails": False, "has_rows": False},
    {"cuts_tails": False},
    {"cuts_tails": False, "takes_back": 3},
    {"cuts_tails": False, "window": 5, "one_prompt": True},
]


def request(name: str, prompt: list[int], max_tokens: int = 8, **more: Any) -> Request:
    """A request for a fake backend."""
    params = GenerationParams(max_tokens=max_tokens, **more)
    return Request(id=name, prompt=Prompt(tuple(prompt)), params=params)


def engine_over(backend: FakeBackend, store: Store | None = None) -> Engine:
    """An engine whose clock is the fake's."""
    return Engine(backend, lambda: backend.now, store=store)


def run(engine: Engine, steps: int = 2_000) -> dict[str, list[Delta]]:
    """Step until idle, checking the books and the counters after each step."""
    deltas: dict[str, list[Delta]] = {}
    before = sums_of(engine.snapshot.stats)
    for _ in range(steps):
        if engine.is_idle:
            return deltas
        for delta in engine.step():
            deltas.setdefault(delta.id, []).append(delta)
        engine.scheduler.check_integrity()
        after = sums_of(engine.snapshot.stats)
        assert not [name for name in before if after[name] < before[name]]
        before = after
    raise AssertionError(f"not idle after {steps} steps")


def sums_of(stats: Stats) -> dict[str, float]:
    """All numbers of the counters, by name."""
    sums: dict[str, float] = {}
    for name, value in msgspec.structs.asdict(stats).items():
        parts: Any = value
        if isinstance(value, Histogram):
            parts = {**dict(enumerate(value.counts)), "total": value.total}
        elif isinstance(value, list):
            parts = dict(enumerate(cast("list[int]", value)))
        elif not isinstance(value, dict):
            parts = {"": value}
        sums |= {f"{name} {part}": number for part, number in parts.items()}
    return sums


def tokens_of(deltas: list[Delta]) -> list[int]:
    """What was sampled."""
    return [delta.token for delta in deltas if delta.token is not None]


def check_books(engine: Engine, backend: FakeBackend) -> None:
    """The engine's books add up, and the backend holds of each slot what they say."""
    engine.scheduler.check_integrity()
    cells = engine.scheduler.cells
    for slot in cells.slots:
        held = backend.tokens(slot.index)
        assert len(held) == slot.length
        assert held == slot.tokens[: slot.length].tolist()
    booked = cells.pool.num_cells - cells.pool.num_free
    # The books still count what was lost behind a window.
    assert backend.num_used <= booked if backend.window else backend.num_used == booked


GUESSED_VOCABULARY = 5_000
# A prompt's beginning.
PREFIX = [1 + i % 40 for i in range(30)]
GUESSED_LIMITS: dict[str, Any] = {
    "num_cells": 2_000, "capacity": 64, "max_outputs": 64, "vocab_size": GUESSED_VOCABULARY
}  # fmt: skip


class Guessed:
    """A model, and an engine in which something guesses what it samples."""

    target: FakeBackend
    engine: Engine

    def ask(self, name: str, prompt: list[int], count: int = 60) -> None:
        """For so many tokens."""
        self.engine.add(request(name, prompt, count))

    def check(self, deltas: dict[str, list[Delta]], name: str, prompt: list[int], count: int = 60):
        """They are those of the model alone."""
        expected = continuation(prompt, count, GUESSED_VOCABULARY, self.target.memory)
        assert tokens_of(deltas[name]) == expected

    def leave_and_put_back(self) -> None:
        """Where cells are few: who leaves or is put back leaves nothing behind that another one
        could read."""
        self.ask("a", [5, *PREFIX], 40)
        self.ask("b", [6, *PREFIX], 40)
        early = [delta for _ in range(4) for delta in self.engine.step() if delta.id == "b"]
        self.engine.abort("a")
        for name in "cd":
            self.ask(name, [ord(name), *PREFIX[:10]], 60)
        deltas = run(self.engine)
        assert self.engine.snapshot.num_preempted > 0
        self.check({"b": early + deltas["b"]}, "b", [6, *PREFIX], 40)
        for name in "cd":
            self.check(deltas, name, [ord(name), *PREFIX[:10]], 60)
        check_books(self.engine, self.target)

    def come_on_again(self, begin: Callable[[], None]) -> int:
        """What was never right begins to be, and is used again. Returns the steps until the end."""
        self.ask("a", [5, 6, 7], 900)
        tokens = 0
        while tokens < 200:
            tokens += len(self.engine.step())
        begin()
        before = self.engine.snapshot.num_steps
        deltas = run(self.engine)
        assert deltas["a"][-1].accepted_tokens > 300
        return self.engine.snapshot.num_steps - before
