"""What guesses may cost a sequence."""

from __future__ import annotations

import numpy as np
import pytest

from worker.engine.backend import Kernels
from worker.engine.cost import StepCost
from worker.engine.credit import STEPS, Credit
from worker.engine.draft import best_rows, gains, price

TOKENS = np.arange(100, dtype=np.int32)


@pytest.mark.parametrize(
    ("guess", "right"), [([10, 11, 12], 3), ([10, 11, 0], 2), ([0, 11, 12], 0), ([10], 1)]
)
def test_what_was_right_is_paid_back(guess: list[int], right: int) -> None:
    """Each right token saves a step; the rows cost what they cost."""
    credit = Credit()
    credit.note(guess, 10, 1.5)
    assert not credit.allows
    credit.settle(TOKENS, 10 + right + 1)
    assert credit.steps == STEPS + right - 1.5
    assert credit.allows


def test_what_a_step_took_is_charged() -> None:
    """Not what was expected of it."""
    credit = Credit()
    credit.note([10, 0], 10, 1.5)
    credit.charge(4.0)
    credit.settle(TOKENS, 12)
    assert credit.steps == STEPS + 1 - 4.0


def test_a_pretended_guess_is_counted_when_its_tokens_are_known() -> None:
    """Step by step, until one differs or all were right."""
    credit = Credit()
    credit.note([0], 10, STEPS + 1)
    credit.settle(TOKENS, 11)
    assert credit.steps == -1
    assert not credit.allows
    assert not credit.is_open
    credit.note([11, 12, 13], 11, 1.0)
    for known in (11, 12, 13):
        credit.settle(TOKENS, known)
        assert credit.is_open
        assert credit.steps == -1
    credit.settle(TOKENS, 14)
    assert credit.steps == 1
    assert credit.allows


def test_tokens_that_are_taken_back_count_for_nothing() -> None:
    """The guess that was open then is forgotten."""
    credit = Credit()
    credit.note([10, 11], 10, 1.0)
    credit.forget()
    credit.settle(TOKENS, 13)
    assert credit.steps == STEPS
    assert credit.allows


@pytest.mark.parametrize("streams", [1, 4])
def test_a_guess_costs_no_more_than_there_is(streams: int) -> None:
    """However much it promises."""
    cost = StepCost(Kernels())
    for rows in range(1, 40):
        cost.observe(rows, 0, 1 + 0.1 * rows)
    promised = gains([0.98**place for place in range(1, 30)])
    found = [best_rows(promised, streams, cost, 64, most) for most in (0.5, 2.0, 4.0)]
    assert found == sorted(found)
    assert 0 < found[0] < found[2]
    for most, count in zip((0.5, 2.0, 4.0), found, strict=True):
        assert price(streams, count, cost) <= most
    assert best_rows(promised, streams, cost, 64) >= found[2]
