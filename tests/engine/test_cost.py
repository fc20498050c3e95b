"""What a step costs, and how much of a prompt a step reads beside running streams."""

from __future__ import annotations

import pytest

from worker.engine.cost import StepCost, chunk_rows

STALL, CAPACITY = 0.45, 512


def rows_after(cost: StepCost, row: float, base: float, stall: float = STALL) -> int:
    """The chunk that 40 steps settle on which take base + row x prompt rows."""
    return run_steps(cost, row, base, stall, 40)


def run_steps(cost: StepCost, row: float, base: float, stall: float, steps: int) -> int:
    rows = 0
    for _ in range(steps):
        cost.observe(4, 0, base)
        rows = chunk_rows(cost, 4, stall, CAPACITY)
        cost.observe(4, rows, base + row * rows)
    return rows


@pytest.mark.parametrize("row", [0.0005, 0.005, 0.02])
def test_the_step_stays_under_the_stall(row: float) -> None:
    """The chunk fills whole blocks of rows and a step takes as long as it may, not longer."""
    rows = rows_after(StepCost(), row, base=0.05)
    assert 0.05 + row * rows <= 0.451
    largest = min(512, int(0.4 / row))
    assert largest - 16 < rows <= largest
    assert (rows + 4) % 16 == 0 or rows < 16


def test_a_slow_machine_still_reads() -> None:
    """Even where every row is too dear a prompt makes progress."""
    assert rows_after(StepCost(), 1.0, base=0.5, stall=0.1) == 8


def test_a_step_of_its_own_has_a_whole_block() -> None:
    """Streams that take all the time there is leave a prompt 16 rows between their steps."""
    cost = StepCost()
    cost.observe(4, 0, 0.5)
    cost.observe(0, 14, 0.6, num_waiting=4)
    assert chunk_rows(cost, 4, STALL, CAPACITY, alone=True) == 16
    assert chunk_rows(cost, 4, STALL, CAPACITY) == 8


def test_it_follows_the_machine() -> None:
    """When rows become dearer the chunk shrinks within a few steps."""
    cost = StepCost()
    fast = rows_after(cost, 0.001, base=0.05)
    slow = run_steps(cost, 0.01, 0.05, STALL, steps=12)
    assert slow < fast / 4


def test_a_dear_plain_step_is_forgotten() -> None:
    """After one slow step without prompts, steps with prompts alone bring the chunk back."""
    cost = StepCost()
    before = rows_after(cost, 0.001, base=0.05)
    for _ in range(8):
        cost.observe(4, 0, 5.0)
    assert chunk_rows(cost, 4, STALL, CAPACITY) == 8
    for _ in range(60):
        rows = chunk_rows(cost, 4, STALL, CAPACITY)
        cost.observe(4, rows, 0.05 + 0.001 * rows)
    after = chunk_rows(cost, 4, STALL, CAPACITY)
    assert before / 2 < after <= 512
    assert 0.05 + 0.001 * after < 1.2 * STALL


def test_cost_between_and_beyond_measured_sizes() -> None:
    """Unmeasured sizes are drawn between their neighbours, or guessed from the largest known."""
    cost = StepCost()
    assert cost.decode(3) == 0
    cost.observe(2, 0, 2.0)
    cost.observe(6, 0, 4.0)
    assert cost.decode(4) == pytest.approx(3.0)
    assert cost.decode(1) == pytest.approx(1.0)
    assert cost.decode(8) > 4.0


def test_one_slow_step_is_forgotten() -> None:
    """A number of rows that is run no more is drawn from others after some steps, so that it is
    tried again; what is run goes on counting."""
    cost = StepCost()
    for rows in (1, 8, 12, 16):
        cost.observe(rows, 0, 0.01 * rows if rows != 12 else 9.0)
    for _ in range(40):
        cost.observe(1, 0, 0.01)
        cost.observe(8, 0, 0.08)
        cost.observe(16, 0, 0.16)
    assert cost.decode(12) == pytest.approx(0.12)
    assert cost.decode(8) == pytest.approx(0.08)
