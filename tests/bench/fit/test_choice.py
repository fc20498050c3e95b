"""The choice of encodings within a budget."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from worker.bench.fit import choice
from worker.bench.fit.choice import EncodingOption, choose, smallest


def problem(tensors: int, seed: int, scale: int = 1) -> list[list[EncodingOption]]:
    """Random tensors with four encodings each: more bytes, less harm."""
    rng = np.random.default_rng(seed)
    return [
        [
            EncodingOption(f"E{index}", int(nbytes) * scale, float(harm))
            for index, (nbytes, harm) in enumerate(
                zip(np.sort(rng.integers(1, 60, 4)), -np.sort(-rng.random(4)), strict=True)
            )
        ]
        for _ in range(tensors)
    ]


def totals(chosen: tuple[EncodingOption, ...] | list[EncodingOption]) -> tuple[int, float]:
    """Bytes and harm of a choice."""
    return sum(each.nbytes for each in chosen), sum(each.harm for each in chosen)


@pytest.mark.parametrize("seed", range(6))
def test_a_small_choice_is_the_best_of_all(seed: int) -> None:
    """No other choice within the bytes does less harm."""
    options = problem(5, seed)
    budget = smallest(options) + 17 * (seed + 1)
    nbytes, harm = totals(choose(options, budget))
    assert nbytes <= budget
    every = (totals(each) for each in itertools.product(*options))
    assert harm == pytest.approx(min(harm for size, harm in every if size <= budget))


def test_a_large_choice_is_near_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """With coarse units the bytes hold, and the harm is within 2 % of the exact one."""
    options = problem(60, 1)
    budget = smallest(options) + 700
    _, exact = totals(choose(options, budget))
    monkeypatch.setattr(choice, "_UNITS", 300)
    nbytes, harm = totals(choose(options, budget))
    assert nbytes <= budget
    assert exact <= harm <= 1.02 * exact


def test_too_few_bytes_and_more_than_enough() -> None:
    """Below the smallest mix there is none; with room for all, each has its best."""
    options = problem(4, 2)
    with pytest.raises(ValueError, match=str(smallest(options) - 1)):
        choose(options, smallest(options) - 1)
    assert totals(choose(options, 10**9))[1] == sum(
        min(each.harm for each in tensor) for tensor in options
    )
