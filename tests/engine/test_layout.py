"""When the cells are laid out anew."""

from __future__ import annotations

from tests.engine.driving import engine_over, request
from tests.support.fakes import FakeBackend
from worker.engine.backend import BatchError, Kernels
from worker.engine.engine import Engine

STREAM = 500


def begun(cell_s: float = 0.0) -> tuple[FakeBackend, Engine]:
    """Cells that a long sequence has made unified, and nobody who runs."""
    backend = FakeBackend(
        num_cells=2 * STREAM, num_slots=2, streams=True, vocab_size=10**6, capacity=64,
        max_outputs=64,
    )  # fmt: skip
    backend.kernels = Kernels(mixed=64, cell_s=cell_s)
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


def test_streams_are_there_before_the_next_one_that_fits() -> None:
    """So what is asked alone is computed in the layout of its own length, whoever was there."""
    backend, engine = begun()
    for number, (length, unified) in enumerate(((30, False), (STREAM + 1, True), (30, False))):
        ask(engine, **{f"r{number}": length})
        assert backend.unified == unified
    ask(engine, 40, longer=STREAM - 20)  # becomes longer than a stream on its way
    assert backend.unified
    ask(engine, **{"longer still": STREAM + 20})
    assert backend.num_arranged == 5


def test_who_is_longer_keeps_the_others_in_one_pool() -> None:
    """Until it has ended: then the others get streams while they run."""
    backend, engine = begun()
    engine.add(request("long", [3] * (STREAM + 50), max_tokens=40))
    engine.add(request("short", [4] * 30, max_tokens=120))
    while engine.status_of("long") is not None:
        engine.step()
        assert backend.unified
    engine.step()
    assert engine.status_of("short") is not None
    assert not backend.unified


def test_a_change_that_nobody_waits_for() -> None:
    """Where streams would wait too long for it, it comes before the next one begins."""
    backend, engine = begun(cell_s=1e-3)  # a change takes a second
    engine.add(request("long", [3] * (STREAM + 50), max_tokens=4))
    engine.add(request("short", [4] * 30, max_tokens=400))
    while not engine.is_idle:
        engine.step()
    assert backend.unified
    ask(engine, a=30)
    assert not backend.unified


def test_a_change_that_fails_is_not_tried_before_each_step() -> None:
    """Everybody runs on in the layout that there is."""
    backend, engine = begun()
    backend.failures = [BatchError]
    ask(engine, 20, a=30)
    assert backend.unified
    assert backend.num_arranged == 2
