"""Attention at depth: which ways, how deep, and how a deep slot is made."""

from __future__ import annotations

from tests.bench.run.jobs import job_of, section_of
from tests.support.fakes import FakeBackend
from worker.bench.measure.bare_loop import BareLoop, depths_within, measure_depths, ways_of
from worker.bench.sizes import EFFORTS
from worker.bench.stages import DEPTH
from worker.demo import MODEL_PATH
from worker.lifecycle.loading import load_backend
from worker.lifecycle.prepared import prepare
from worker.settings import Settings

SIZES = EFFORTS["quick"][0]


def test_depths_leave_room() -> None:
    """No depth at which the sequence would not fit the model's context."""
    assert depths_within(256, SIZES) == [0]
    assert depths_within(2048, SIZES) == [0, 1024]
    assert depths_within(8192, SIZES) == [0, 1024, 4096]


def test_ways() -> None:
    """Three ways, and a fourth where other cache types were asked for."""
    ways = [(s.flash_attn, s.cache_type_k, s.cache_type_v) for s in ways_of(Settings(), 0, SIZES)]
    assert ways == [("on", "f16", "f16"), ("off", "f16", "f16"), ("on", "q8_0", "q8_0")]
    asked = ways_of(Settings(cache_type_k="q4_0"), 1024, SIZES)
    assert (asked[-1].cache_type_k, asked[-1].cache_type_v, len(asked)) == ("q4_0", "f16", 4)
    assert all(s.parallel == 1 and (s.ctx_size or 0) > 1024 + 64 for s in asked)


def test_a_deep_slot_holds_its_depth() -> None:
    """Copies of a few tokens stand behind each other; then a prompt is read after them."""
    settings = Settings(ctx_size=512, parallel=1, threads=1, threads_batch=1)
    with load_backend(MODEL_PATH, settings, prepare(MODEL_PATH, settings)) as backend:
        loop = BareLoop(backend)
        loop.deepen(200)
        assert backend.context.span(0) == (0, 199)
        loop.prefill(16, 200)
        assert backend.context.span(0) == (0, 215)


def test_a_state_that_is_no_rows_is_read() -> None:
    """Where a state cannot be joined, all tokens are read."""
    backend = FakeBackend(num_cells=1024, num_slots=1, capacity=16, cuts_tails=False)
    loop = BareLoop(backend, lambda: backend.now)
    loop.deepen(200)
    loop.prefill(16, 200)
    assert sum(backend.batch_sizes) == 216


def test_depths_stop_when_the_seconds_are_over() -> None:
    """The first depth is measured in any case, the others while there is time."""
    for budget_s, count in ((0.0, 1), (1e6, 2)):
        backend = FakeBackend(num_cells=2048, num_slots=1, capacity=16)
        rates = measure_depths(backend, [0, 60], SIZES, budget_s, lambda b=backend: b.now)
        assert len(rates) == 2 * count
        assert {rate.kind for rate in rates} == {"prefill", "decode"}
        assert all(rate.per_s.mean > 0 for rate in rates)


def test_the_stage() -> None:
    """The demo model in all ways; a cache of q8_0 is smaller."""
    settings = Settings(threads=1, threads_batch=1)
    section = section_of(DEPTH, job_of(DEPTH, MODEL_PATH, settings, SIZES))
    on, off, small = section.ways
    assert (on.error, off.error, small.error) == ("", "", "")
    assert small.kv_bytes_per_token < on.kv_bytes_per_token == off.kv_bytes_per_token
    assert on.rate("prefill", 0) is not None
