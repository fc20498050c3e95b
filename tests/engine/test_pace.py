"""How much of a prompt a step reads beside running streams."""

from __future__ import annotations

import pytest

from worker.engine.pace import Pace


def run_steps(pace: Pace, seconds_of: float, base: float, steps: int = 40) -> int:
    """Feed the pace with steps that cost base + seconds_of x rows; the rows it settles on."""
    rows = 0
    for _ in range(steps):
        pace.observe(4, 0, base)
        rows = pace.prompt_rows(4)
        pace.observe(4, rows, base + seconds_of * rows)
    return rows


@pytest.mark.parametrize("slope", [0.0005, 0.005, 0.02])
def test_the_step_stays_under_the_stall(slope: float) -> None:
    """The chunk fills whole blocks of rows and a step takes as long as it may, not longer."""
    rows = run_steps(Pace(0.45, 512), slope, base=0.05)
    assert 0.05 + slope * rows <= 0.451
    largest = min(512, int(0.4 / slope))
    assert largest - 16 < rows <= largest
    assert (rows + 4) % 16 == 0 or rows < 16


def test_nothing_runs_beside() -> None:
    """A prompt alone gets the whole batch."""
    assert Pace(0.45, 512).prompt_rows(0) == 512


def test_a_slow_machine_still_reads() -> None:
    """Even where every row is too dear a prompt makes progress."""
    assert run_steps(Pace(0.1, 512), 1.0, base=0.5) == 8


def test_it_follows_the_machine() -> None:
    """When rows become dearer the chunk shrinks within a few steps."""
    pace = Pace(0.45, 512)
    fast = run_steps(pace, 0.001, base=0.05)
    slow = run_steps(pace, 0.01, base=0.05, steps=12)
    assert slow < fast / 4
