"""Random requests to the engine, for every kind of cache: each gets what it gets alone."""

from __future__ import annotations

import pytest

from tests.llama.test_architectures import RECURRENT, Open
from tests.support.sessions import soak


def test_all_at_random(start: Open) -> None:
    """Random prompts, conversations, common beginnings and aborts in a small cache."""
    session = start(num_cells=256, num_slots=2, batch_size=16, ubatch_size=8)
    soak(session, 3, 25)


@pytest.mark.parametrize("kept_bytes", [0, 40_000, 1 << 26])
def test_both_layouts_at_random(name: str, start: Open, kept_bytes: int) -> None:
    """The same where some sequences outgrow a stream, so that the layout changes and changes back.

    Whatever is kept of what ended, and whatever has to leave again, changes nothing.
    """
    session = start(num_cells=1024, num_slots=4, batch_size=64, kept_bytes=kept_bytes)
    changes = session.count_changes()
    soak(session, 5, 16, reach=500)
    if name not in RECURRENT:
        assert {True, False} <= set(changes)
