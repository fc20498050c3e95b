"""Which rows a step computes: streams and prompts together, or in turns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.engine.driving import request
from tests.support.fakes import FakeBackend
from worker.cache.store import Store
from worker.engine.backend import Kernels
from worker.engine.engine import Engine
from worker.engine.kv.keeper import APART
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


def read_in_order(*arrivals: tuple[int, str, int]) -> list[str]:
    """Names of prompts by their first token, beside a stream that holds few cells.

    arrivals: before which step a prompt comes, its name, its number of tokens
    """
    backend = FakeBackend(num_cells=20_000, num_slots=8, capacity=64, vocab_size=10**6, per_row=0.0)
    engine = Engine(backend, lambda: backend.now, max_stall=5.0)
    engine.add(request("stream", [3, 4], max_tokens=5_000))
    first: list[str] = []
    for step in range(300):
        for number, (at, name, length) in enumerate(arrivals):
            if at == step:
                engine.add(request(name, [10 + number] * length, max_tokens=1))
        for delta in engine.step():
            engine.scheduler.check_integrity()
            if delta.id not in ("stream", *first):
                first.append(delta.id)
    return first


def test_prompts_that_come_together_follow_each_other() -> None:
    """The first one is read to its end before the second one is begun."""
    backend = FakeBackend(num_cells=9_000, num_slots=4, capacity=64, vocab_size=10**6)
    engine = Engine(backend, lambda: backend.now)
    for number in range(4):
        engine.add(request(str(number), [10 + number] * 150, max_tokens=1))
    ended = [[delta.id for delta in engine.step()] for _ in range(12)]
    assert ended == [[], [], ["0"], [], [], ["1"], [], [], ["2"], [], [], ["3"]]


def test_a_short_prompt_overtakes_a_long_one() -> None:
    """It does not wait until the long one is read."""
    assert read_in_order((1, "long", 2_000), (4, "short", 60)) == ["short", "long"]


def test_a_long_prompt_is_not_overtaken_for_ever() -> None:
    """Short ones that keep coming overtake it until as much was read as it has tokens."""
    shorts = [(3 + 2 * i, f"s{i}", 60) for i in range(60)]
    order = read_in_order((1, "long", 600), *shorts)
    assert set(order) == {"long", *(name for _, name, _ in shorts)}
    assert 2 < order.index("long") < 20


def test_a_short_prompt_waits_for_no_long_one_that_is_due() -> None:
    """It has every second turn, where the long one has waited for another long one before."""
    backend = FakeBackend(num_cells=20_000, num_slots=8, capacity=64, vocab_size=10**6, per_row=0.0)
    engine = Engine(backend, lambda: backend.now)
    for number in range(2):
        engine.add(request(f"long{number}", [10 + number] * 3_000, max_tokens=1))
    ended: list[str] = []
    while not ended:
        ended += [delta.id for delta in engine.step()]
    engine.add(request("short", [5] * 150, max_tokens=1))
    steps = 0
    while "short" not in ended:
        ended += [delta.id for delta in engine.step()]
        steps += 1
    assert steps <= 6  # three of its own, and as many of the one that is due
    while not engine.is_idle:
        ended += [delta.id for delta in engine.step()]
    assert ended == ["long0", "short", "long1"]


def test_what_fits_beside_the_end_of_a_prompt_is_read_with_it() -> None:
    """A prompt that is short enough shares the step, one that would only be begun does not."""
    backend = FakeBackend(num_cells=9_000, num_slots=4, capacity=64, vocab_size=10**6)
    engine = Engine(backend, lambda: backend.now)
    for name, length in (("a", 84), ("b", 100)):
        engine.add(request(name, [ord(name)] * length, max_tokens=1))
    engine.step()
    engine.add(request("c", [3] * 30, max_tokens=1))
    ended = [[delta.id for delta in engine.step()] for _ in range(3)]
    assert ended == [["a", "c"], [], ["b"]]
    assert backend.batch_sizes == [64, 50, 64, 36]


def batches_of_eight(length: int, **kind: Any) -> list[int]:
    """Rows of each step in which eight prompts of so many tokens are read that came at once."""
    backend = FakeBackend(
        num_cells=4_000, num_slots=8, capacity=512, vocab_size=10**6, streams=True, **kind
    )
    backend.kernels = Kernels(piece=128)
    store = Store(10**6, needs_rest=True)
    engine = Engine(backend, lambda: backend.now, store=store, max_stall=1_000)
    for number in range(8):
        engine.add(request(str(number), [10 + number] * length, max_tokens=1))
    ended = 0
    while ended < 8:
        ended += sum(delta.is_last for delta in engine.step())
        engine.scheduler.check_integrity()
    return backend.batch_sizes


@pytest.mark.parametrize("kind", [{"window": 8}, {"cuts_tails": False}])
def test_prompts_that_pause_for_a_copy_are_read_together(kind: dict[str, Any]) -> None:
    """Where states are copied on the way, all that fit a step come to that place in it.

    128 rows of a step are those of three; then these end beside the next ones.
    """
    pause = APART + 4
    rows = [3 * pause, 3 * (4 + pause), 3 * 4 + 2 * pause, 2 * 4]
    assert batches_of_eight(pause + 4, **kind) == rows


@pytest.mark.parametrize("kind", [{"window": 8}, {"cuts_tails": False}])
def test_a_short_prompt_does_not_pause(kind: dict[str, Any]) -> None:
    """A state of a few tokens is not worth a step of its own."""
    assert batches_of_eight(12, **kind) == [8 * 12]
