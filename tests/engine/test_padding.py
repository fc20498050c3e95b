"""Rows that nobody reads: added where pairs of steps show that it is faster, and not else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driving import check_books, engine_over, request, run, tokens_of
from tests.support.fakes import FakeBackend, continuation
from worker.engine.steps.padding import Padding


class Blocks(FakeBackend):
    """A backend whose steps take as long as the next number of rows that 4 divides, and more."""

    now: float

    def __init__(self, loss: float, **options: Any) -> None:
        super().__init__(**options, vocab_size=10**6, per_row=0.0)
        self.loss = loss

    def decode(self) -> None:
        super().decode()
        self.now += self.loss * (self.batch.size % 4 != 0)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("loss", "filled"), [(0.2, True), (-0.2, False), (0.0, False)])
def test_steps_are_filled_where_that_is_faster(*, streams: bool, loss: float, filled: bool) -> None:
    """Three streams take steps of four rows if those are shorter; their tokens stay the same."""
    backend = Blocks(loss, num_cells=1_000, num_slots=4, streams=streams)
    engine = engine_over(backend)
    prompts = {name: [ord(name), 9] for name in "abc"}
    for name, prompt in prompts.items():
        engine.add(request(name, prompt, max_tokens=60))
    deltas = run(engine)
    for name, prompt in prompts.items():
        assert tokens_of(deltas[name]) == continuation(prompt, 60, backend.vocab_size)
    sizes = backend.batch_sizes[1:]
    assert sizes.count(4) == (len(sizes) - 3 if filled else 3)


def test_another_slot_must_be_there() -> None:
    """Where all slots run, nothing is added."""
    backend = Blocks(0.2, num_cells=1_000, num_slots=3)
    engine = engine_over(backend)
    for name in "abc":
        engine.add(request(name, [ord(name), 9], max_tokens=20))
    run(engine)
    assert 4 not in backend.batch_sizes[1:]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("loss", "filled"), [(0.2, True), (-0.2, False)])
def test_ends_of_prompts_are_filled_where_that_is_faster(
    *, streams: bool, loss: float, filled: bool
) -> None:
    """Prompts of 63 tokens are read in steps of 64 rows if those are shorter; nothing is left."""
    backend = Blocks(loss, num_cells=1_000, num_slots=4, capacity=80, streams=streams)
    engine = engine_over(backend)
    for number in range(20):
        prompt = [number + 2] * 63
        engine.add(request(str(number), prompt, max_tokens=1))
        deltas = run(engine)
        check_books(engine, backend)
        assert tokens_of(deltas[str(number)]) == continuation(prompt, 1, backend.vocab_size)
    assert backend.batch_sizes.count(64) == (17 if filled else 3)


def test_a_prompt_without_room_behind_it_is_read_as_it_is() -> None:
    """Nothing is added behind the last cell of a stream."""
    backend = Blocks(0.2, num_cells=252, num_slots=4, capacity=80, streams=True)
    engine = engine_over(backend)
    for number in range(8):
        engine.add(request(str(number), [number + 2] * 62, max_tokens=1))
        run(engine)
    assert set(backend.batch_sizes) == {62}


def test_verdicts_are_looked_at_again() -> None:
    """After some hundred steps one pair is compared again, and may change the verdict."""
    padding = Padding()
    faster = True
    added: list[bool] = []
    for step in range(3_000):
        faster = step < 1_000
        added.append(padding.fills(7))
        padding.observe(7, added[-1], 1.0 + (0.5 if faster else -0.5) * (not added[-1]))
    assert sum(added[10:1_000]) > 0.9 * 990
    assert sum(added[2_500:]) < 0.1 * 500


def test_whole_blocks_and_few_rows_are_left_alone() -> None:
    """A step of a whole block, and one that would more than double, is what it is."""
    found = [Padding.missing(rows) for rows in range(1, 17)]
    assert found == [0, 0, 1, 0, 3, 2, 1, 0, 3, 2, 1, 4, 3, 2, 1, 0]
    found = {rows for rows in range(1, 300) if Padding.missing_of_prompt(rows)}
    assert found & set(range(40, 70)) == {44, 45, 46, 47, *range(49, 64)}
    assert not found & {1, 11, 16, 48, 64, 128, 191}
