"""Streams of the demo model that make way for others and come back."""

from __future__ import annotations

import pytest

from tests.support.making_way import run_disturbed

SLOTS = [1, 3]


@pytest.mark.parametrize("slots", SLOTS)
def test_texts_are_equal(slots: int) -> None:
    """A stream that makes way one to four times, while it reads and while it writes, greedy and
    seeded, says what it says undisturbed: 50 of 50."""
    equal, put_aside = run_disturbed(50, slots)
    assert equal == 50
    assert put_aside >= 80
