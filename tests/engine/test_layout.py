"""When the cells are laid out anew, by what that costs and what it saves."""

from __future__ import annotations

from collections.abc import Sequence

from tests.engine.driving import engine_over, request
from tests.support.fakes import FakeBackend
from worker.engine.engine import Engine

STREAM = 500


class Slow(FakeBackend):
    """To lay out the cells takes `change_s` seconds."""

    change_s = 5.0

    def arrange(self, *, unified: bool, slots: Sequence[int], fused: bool = True) -> set[int]:
        self.now += self.change_s
        return super().arrange(unified=unified, slots=slots, fused=fused)


def begun() -> tuple[Slow, Engine]:
    """Cells that a long sequence has made unified, and nobody who runs."""
    backend = Slow(
        num_cells=2 * STREAM, num_slots=2, streams=True, scan_seconds=0.1, vocab_size=10**6,
        capacity=64, max_outputs=64,
    )  # fmt: skip
    engine = engine_over(backend)
    ask(engine, long=STREAM + 50)
    assert backend.unified
    return backend, engine


def ask(engine: Engine, num_tokens: int = 1, **lengths: int) -> None:
    """Let prompts of these lengths be answered with so many tokens each, all at once."""
    for number, (name, length) in enumerate(lengths.items()):
        engine.add(request(name, [3 + number] * length, max_tokens=num_tokens))
    while not engine.is_idle:
        engine.step()
        engine.scheduler.check_integrity()


def test_changes_of_a_busy_hour_are_forgotten() -> None:
    """Once they are quick again streams get their own cells back, while they run."""
    backend, engine = begun()
    backend.change_s = 0.01
    ask(engine, 20, a=30, b=30)
    assert not backend.unified
    backend.change_s = 5.0
    for _ in range(8):
        ask(engine, long=STREAM + 50)
        ask(engine, 3, a=30, b=30)
        if backend.unified:  # streams would wait too long
            break
    assert backend.unified
    backend.change_s = 0.01
    ask(engine, 400, a=30, b=30)
    assert not backend.unified


def test_a_change_that_nobody_waits_for() -> None:
    """Where streams would wait too long for it, it comes before the next one begins."""
    backend, engine = begun()
    for _ in range(4):
        ask(engine, long=STREAM + 50)
        ask(engine, 40, a=30, b=30)
    assert backend.unified
    ask(engine, 2, a=30)
    assert not backend.unified
