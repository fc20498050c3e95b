"""Which rows a step computes: streams and prompts together, or in turns."""

from __future__ import annotations

from itertools import pairwise

from tests.engine.driving import request
from tests.support.fakes import FakeBackend
from worker.engine.engine import Engine
from worker.engine.plan import FEW_CELLS


def run_beside(context: int) -> list[tuple[int, int]]:
    """(rows, streams that got a token) of each step in which a prompt of 400 tokens is read.

    context: tokens of each of the three streams that run beside it
    """
    backend = FakeBackend(
        num_cells=4_000, num_slots=4, capacity=128, mixed_rows=31, vocab_size=10**6, per_row=0.001
    )
    engine = Engine(backend, lambda: backend.now, max_stall=2.2)
    for index in range(3):
        engine.add(request(f"s{index}", [10 + index] * context, max_tokens=400))
    while sum(s.num_known > s.num_prompt for s in engine.scheduler.running) < 3:
        engine.step()
    for _ in range(3):
        engine.step()
    engine.add(request("long", [7] * 400, max_tokens=1))
    steps: list[tuple[int, int]] = []
    while True:
        deltas = engine.step()
        engine.scheduler.check_integrity()
        steps.append((backend.batch.size, sum(delta.id != "long" for delta in deltas)))
        if any(delta.id == "long" for delta in deltas):
            return steps


def test_short_streams_share_steps_with_a_prompt() -> None:
    """Streams with few cells get their token in each step, and the prompt the other rows."""
    steps = run_beside(FEW_CELLS // 3 - 60)
    assert all(streams == 3 for _, streams in steps)
    assert max(rows for rows, _ in steps) > 31


def test_long_streams_and_a_prompt_take_turns() -> None:
    """A step of many rows holds no row of streams with many cells, and each second step is theirs.

    The end of the prompt is short enough to share a step with them.
    """
    steps = run_beside(400)
    assert all(rows <= 31 for rows, streams in steps if streams)
    assert all(before or streams for (_, before), (_, streams) in pairwise(steps))
    alone = [rows for rows, streams in steps if not streams]
    assert sum(alone) > 300
    assert any(rows % 64 == 0 for rows in alone)
