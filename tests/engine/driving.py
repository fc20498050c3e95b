"""An engine over a fake backend: what it is asked, and stepping it with its books checked."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from tests.support.fakes import FakeBackend
from worker.engine.engine import Engine
from worker.engine.request import Request
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
    {"cuts_tails": False, "window": 5, "one_prompt_a_step": True},
]


def request(name: str, prompt: list[int], max_tokens: int = 8, **more: object) -> Request:
    """A request for a fake backend."""
    return Request(id=name, prompt=tuple(prompt), max_tokens=max_tokens, **more)  # type: ignore[arg-type]


def engine_over(backend: FakeBackend) -> Engine:
    """An engine whose clock is the fake's."""
    return Engine(backend, lambda: backend.now)


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
    booked = cells.num_cells - cells.num_free
    # The books still count what was lost behind a window.
    assert backend.num_used <= booked if backend.window else backend.num_used == booked
