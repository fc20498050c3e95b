"""The counters that others read: whole at each moment, never older than what was delivered."""

from __future__ import annotations

import pytest

from tests.engine.driving import engine_over, request
from tests.support.fakes import FakeBackend
from worker.engine.stats import BORDERS, Histogram


def test_a_snapshot_counts_what_was_delivered() -> None:
    """After each step the snapshot counts all tokens that were delivered, and all cells."""
    backend = FakeBackend(num_cells=200, num_slots=2, vocab_size=10_000)
    engine = engine_over(backend)
    for i in range(4):
        engine.add(request(f"r{i}", [1 + i, 2, 3], max_tokens=5))
        assert engine.snapshot.num_waiting == i + 1
    delivered = ended = 0
    while not engine.is_idle:
        for delta in engine.step():
            delivered += delta.token is not None
            ended += delta.is_last
        now = engine.snapshot
        sampled = now.stats.sampled_tokens + sum(s.num_sampled for s in now.running)
        assert sampled == delivered
        assert now.stats.finished["length"] == ended
        assert now.num_running + now.num_waiting + ended == 4
        assert now.num_running <= now.max_running == 2
        assert now.num_cells == 200
        assert now.live_cells == sum(s.num_computed for s in now.running)  # they share nothing
    assert ended == 4
    assert engine.snapshot.stats.prompt_tokens == 12


def test_who_runs_is_told_while_the_batch_is_computed() -> None:
    """A request counts as running, not as waiting, while its first batch is computed."""
    seen: list[tuple[int, int]] = []

    class Looking(FakeBackend):
        def decode(self) -> None:
            seen.append((engine.snapshot.num_running, engine.snapshot.num_waiting))
            super().decode()

    backend = Looking(num_slots=1)
    engine = engine_over(backend)
    engine.add(request("a", [1, 2], max_tokens=1))
    engine.add(request("b", [3, 4], max_tokens=1))
    while not engine.is_idle:
        engine.step()
    assert seen == [(1, 1), (1, 0)]


def test_an_abort_is_counted_at_once() -> None:
    """Whoever leaves is gone from the snapshot without another step; an old one stays as it was."""
    engine = engine_over(FakeBackend())
    engine.add(request("a", [1, 2]))
    before = engine.snapshot
    engine.abort("a")
    assert before.num_waiting == 1
    assert engine.snapshot.num_waiting == 0
    assert engine.snapshot.stats.finished["aborted"] == 1
    assert before.stats.finished["aborted"] == 0
    with pytest.raises(AttributeError):
        before.num_waiting = 2  # pyright: ignore[reportAttributeAccessIssue]


def test_histogram_borders() -> None:
    """A value on a border counts below it, one beyond the last border in the last place."""
    histogram = Histogram().plus(BORDERS[0]).plus(BORDERS[-1] + 1, times=3)
    assert histogram.counts == (1, *[0] * (len(BORDERS) - 1), 3)
    assert histogram.total == pytest.approx(BORDERS[0] + 3 * (BORDERS[-1] + 1))
