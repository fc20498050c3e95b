"""Quotients of what is measured side by side."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.peers.quotients import quotient


def test_pairs_count_not_medians() -> None:
    """Where both are slow in the same rounds, each round says the same."""
    found = quotient([100.0, 50.0, 10.0], [50.0, 25.0, 5.0])
    assert found.middle == 2
    assert str(found) == "2.000"


@pytest.mark.parametrize("count", [6, 12, 40, 200])
def test_the_interval_holds_the_true_one(count: int) -> None:
    """In 95 % of many trials or a little less, as the normal approximation has it."""
    random = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        speed = random.uniform(50, 200, count)
        noise = random.lognormal(0, 0.1, (2, count))
        found = quotient(0.97 * speed * noise[0], speed * noise[1])
        assert found.low <= found.middle <= found.high
        hits += found.low <= 0.97 <= found.high
    assert 0.92 <= hits / 400 <= 0.99


def test_each_has_its_partner() -> None:
    """Unpaired values are an error, not left out."""
    with pytest.raises(ValueError, match="shorter"):
        quotient([1.0, 2.0], [1.0])
