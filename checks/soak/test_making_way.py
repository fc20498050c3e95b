"""Streams that make way for others, many times: each says what it says undisturbed."""

from __future__ import annotations

import pytest

from tests.support.making_way import run_disturbed


@pytest.mark.parametrize("slots", [1, 3])
def test_texts_are_equal(slots: int) -> None:
    """Greedy and seeded, 250 of 250 in either layout."""
    equal, put_aside = run_disturbed(250, slots)
    assert equal == 250
    assert put_aside >= 400
