"""The bare loop's arithmetic on a clock that tells what was computed; and on the real one."""

from __future__ import annotations

import os
import statistics
import time

import numpy as np
import pytest

from tests.bench.run.jobs import job_of, section_of
from tests.support.fakes import FakeBackend
from worker.bench.measure.bare_loop import BareLoop, measure_speed
from worker.bench.sections import LoopSpeed
from worker.bench.sizes import Sizes
from worker.bench.stages import SPEED
from worker.demo import MODEL_PATH
from worker.lifecycle.loading import load_backend
from worker.lifecycle.prepared import prepare
from worker.settings import Settings

SIZES = Sizes(window=64, windows=1, questions=1, greedy_prompts=1, greedy_tokens=4, prompt=24,
              depth=20, decode=6, repetitions=3, requests=2, loads=1)  # fmt: skip


def fake(*, cuts_tails: bool = True) -> FakeBackend:
    """A step takes 1 second and 0.01 for each row; 16 rows at once."""
    return FakeBackend(num_cells=256, num_slots=4, capacity=16, cuts_tails=cuts_tails)


def measured(backend: FakeBackend) -> LoopSpeed:
    """All tests on the fake's own time."""
    return measure_speed(backend, SIZES, 3, lambda: None, clock=lambda: backend.now)


@pytest.mark.parametrize("cuts_tails", [True, False], ids=["attention", "recurrent"])
def test_rates_are_tokens_by_seconds(*, cuts_tails: bool) -> None:
    """Prompts in full batches, a row of each stream a step; the depth costs nothing here."""
    backend = fake(cuts_tails=cuts_tails)
    found = measured(backend)
    read = 24 / (2 + 0.24)  # 16 and 8 tokens
    wanted = {("prefill", 1): read, ("decode", 1): 1 / 1.01, ("decode", 3): 3 / 1.03}
    assert len(found.rates) == 6
    for rate in found.rates:
        assert rate.per_s.count == SIZES.repetitions
        assert rate.per_s.mean == pytest.approx(wanted[rate.kind, rate.streams])
        assert rate.per_s.deviation == pytest.approx(0, abs=1e-9)
    assert {rate.depth for rate in found.rates} == {0, 20}
    assert backend.live_samplers == 0


def test_requests_count_from_their_arrival() -> None:
    """The first token of a stream waits for the prompts before it; then all go together."""
    one, three = measured(fake()).requests
    assert one.ttft is not None
    assert one.itl is not None
    assert three.ttft is not None
    assert one.ttft.values == pytest.approx([2.24] * 2)
    assert one.itl.values == pytest.approx([1.01] * 10)
    assert three.ttft.values == pytest.approx([2.24, 4.48, 6.72] * 2)
    assert three.per_s.mean == pytest.approx(3 / 1.03)
    assert three.passes == pytest.approx([3 / 1.03])


def test_every_repetition_starts_from_the_same_cache() -> None:
    """Only the streams of a test hold cells, each as many as its depth says."""
    backend = fake()
    loop = BareLoop(backend, clock=lambda: backend.now)
    for streams, depth in ((3, 20), (1, 20), (2, 0), (1, 0), (3, 20)):
        loop.decode(streams, 5, depth)
        held = [len(backend.cells[slot]) for slot in range(4)]
        assert held == [depth + 5] * streams + [0] * (4 - streams)
        loop.prefill(7, depth)
        assert [len(backend.cells[slot]) for slot in range(4)] == [depth + 7, 0, 0, 0]


def test_prompts_are_never_read_twice() -> None:
    """Each prompt is new, so that no prefix of it can be in a cache."""
    backend = fake()
    loop = BareLoop(backend, clock=lambda: backend.now)
    seen: list[tuple[int, ...]] = []
    for _ in range(5):
        loop.prefill(24, 0)
        seen.append(tuple(cell[0] for cell in backend.cells[0] if isinstance(cell, list)))
    assert len(set(seen)) == 5
    assert all(0 <= token < backend.vocab_size for prompt in seen for token in prompt)


@pytest.mark.skipif(not os.environ.get("EXHAUSTIVE"), reason="timings; set EXHAUSTIVE=1")
def test_the_child_agrees_with_a_loop_written_here() -> None:
    """Tokens a second of one stream, within three of the child's deviations or 25 %."""
    settings = Settings(threads=1, threads_batch=1, parallel=2, ctx_size=1024)
    sizes = Sizes(window=64, windows=1, questions=1, greedy_prompts=1, greedy_tokens=4,
                  prompt=128, depth=0, decode=200, repetitions=10, requests=1, loads=1)  # fmt: skip
    found = section_of(SPEED, job_of(SPEED, MODEL_PATH, settings, sizes))
    rate = next(r.per_s for r in found.rates if (r.kind, r.streams) == ("decode", 1))
    speeds: list[float] = []
    with load_backend(MODEL_PATH, settings, prepare(MODEL_PATH, settings)) as backend:
        for _ in range(10):
            backend.context.clear()
            token, started = 0, time.perf_counter()
            for position in range(200):
                backend.batch.clear()
                backend.batch.add_one(token, position, 0)
                backend.decode()
                token = int(np.argmax(backend.logits(0)))
            speeds.append(200 / (time.perf_counter() - started))
    tolerance = max(3 * rate.deviation, 0.25 * rate.mean)
    assert abs(statistics.median(speeds) - rate.mean) < tolerance
