"""The counters that others read: whole at each moment, never older than what was delivered."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.engine.driving import engine_over, request, run
from tests.support.disks import flush
from tests.support.fakes import FakeBackend
from worker.cache.disk import Disk
from worker.cache.store import Store
from worker.engine.backend import BatchError, OutOfCells
from worker.engine.drafts.guesser import Drafting
from worker.engine.engine import Engine
from worker.engine.stats import BORDERS, Stats, histogram


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
        assert now.stats.sampled_tokens == delivered
        assert now.stats.finished["length"] == ended
        assert now.num_running + now.num_waiting + ended == 4
        assert now.num_running <= now.max_running == 2
        assert now.num_cells == 200
        assert now.live_cells == sum(s.num_computed for s in now.running)  # they share nothing
    assert ended == 4
    stats = engine.snapshot.stats
    assert (stats.prompt_tokens, stats.computed_tokens, stats.looked_up_tokens) == (12, 12, 12)
    assert sum(stats.queue_time.counts) == sum(stats.first_token.counts) == 4
    assert sum(stats.inter_token.counts) == 4 * 4
    assert (stats.prompt_lengths.total, stats.answer_lengths.total) == (12, 20)
    assert stats.longest == 8
    assert sum(stats.step_rows.counts) == engine.snapshot.num_steps
    assert stats.step_rows.total == backend.rows_computed
    assert stats.prompt_s + stats.token_s == pytest.approx(backend.now)


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
    before, sums = engine.snapshot, engine.snapshot.stats.copy()
    engine.abort("a")
    assert before.num_waiting == 1
    assert engine.snapshot.num_waiting == 0
    assert engine.snapshot.stats.finished["aborted"] == 1
    assert sums.finished["aborted"] == 0
    with pytest.raises(AttributeError):
        before.num_waiting = 2  # pyright: ignore[reportAttributeAccessIssue]


def test_histogram_borders() -> None:
    """A value on a border counts below it, one beyond the last border in the last place."""
    full = histogram().plus(BORDERS[0]).plus(BORDERS[-1] + 1, times=3)
    assert full.counts == (1, *[0] * (len(BORDERS) - 1), 3)
    assert full.total == pytest.approx(BORDERS[0] + 3 * (BORDERS[-1] + 1))


def test_a_prompt_counts_while_it_is_read() -> None:
    """Prompt tokens count step by step, before there is a first token."""
    engine = engine_over(FakeBackend(capacity=4))
    engine.add(request("a", [*range(1, 11)], max_tokens=2))
    seen: list[int] = []
    while not engine.is_idle:
        engine.step()
        seen.append(engine.snapshot.stats.prompt_tokens)
    assert seen[:4] == [4, 8, 10, 10]


def test_hits_are_counted_by_source(tmp_path: Path) -> None:
    """A prompt is found in another's cells, in host memory, or on the disk by who starts anew."""
    prompt = [1 + i % 40 for i in range(200)]

    def ask(engine: Engine, *texts: list[int]) -> Stats:
        for place, text in enumerate(texts):
            engine.add(request(f"r{place}", text, max_tokens=2))
            run(engine)
        return engine.snapshot.stats

    def new_engine() -> tuple[Engine, Store]:
        backend = FakeBackend(num_cells=400, num_slots=1, vocab_size=10_000)
        disk = Disk(tmp_path, 1 << 20, b"model", backend.row_bytes)
        flush(disk)
        store = Store(1 << 20, needs_rest=False, disk=disk)
        return Engine(backend, lambda: backend.now, store=store), store

    engine, store = new_engine()
    stats = ask(engine, prompt, prompt)  # the second one takes the slot over
    assert (stats.shared_tokens, stats.memory_tokens, stats.disk_tokens) == (200, 0, 0)
    stats = ask(engine, [9] * 20, prompt)  # another one had the only slot meanwhile
    assert (stats.shared_tokens, stats.memory_tokens, stats.disk_tokens) == (200, 200, 0)
    assert (stats.computed_tokens, stats.looked_up_tokens) == (200 + 20, 620)
    store.close(10)
    engine, store = new_engine()
    stats = ask(engine, prompt)
    assert (stats.shared_tokens, stats.memory_tokens) == (0, 0)
    assert 128 <= stats.disk_tokens == 200 - stats.computed_tokens
    store.close(10)


def test_a_stream_that_waits_too_long_is_a_stall() -> None:
    """Counted is each token that comes later after the one before than a stream may wait."""
    backend = FakeBackend(num_slots=1, vocab_size=10_000)
    engine = Engine(backend, lambda: backend.now, max_stall=3)
    engine.add(request("a", [1, 2], max_tokens=6))
    engine.step()
    for pause in (0, 1.5, 2.5, 0):
        backend.now += pause
        engine.step()
    stats = engine.snapshot.stats
    assert stats.num_stalls == 1
    assert sum(stats.inter_token.counts) == 4
    run(engine)
    assert engine.snapshot.stats.num_stalls == 1


@pytest.mark.parametrize("seed", range(4))
def test_counters_never_fall(seed: int) -> None:
    """Not with sequences put back, failed batches, errors, guesses or aborts; `run` compares."""
    rng = random.Random(seed)
    backend = FakeBackend(
        num_cells=60, num_slots=4, vocab_size=12, memory=1, max_outputs=32, poison=11
    )
    backend.failures = [rng.choice([None, None, None, OutOfCells, BatchError]) for _ in range(60)]
    guesses = Drafting(looks_up=True)
    engine = Engine(backend, lambda: backend.now, drafting=guesses, max_stall=1.2)
    for place in range(12):
        prompt = [rng.randrange(1, 11) for _ in range(rng.randrange(1, 12))] * 2
        engine.add(request(f"r{place}", prompt, max_tokens=rng.randrange(1, 30)))
    engine.add(request("bad", [11, 3], max_tokens=3))
    engine.step()
    engine.abort("r3")
    run(engine)
    end = engine.snapshot
    assert end.num_preempted > 0
    assert end.stats.finished["error"] > 0
    assert end.stats.num_drafts > 0
    assert 0 < end.stats.accepted_tokens <= end.stats.drafted_tokens
    assert end.stats.cached_tokens <= end.stats.looked_up_tokens
    assert sum(end.stats.finished.values()) == 13
