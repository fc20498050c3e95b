"""The demo model as a user meets it."""

from __future__ import annotations

import json

from tests.support.processes import serving


def test_it_is_served_without_a_warning() -> None:
    """Neither llama.cpp nor the worker finds anything wrong with our own model."""
    with serving() as server:
        levels = [json.loads(line)["level"] for line in server.lines]
    assert "info" in levels
    assert not {"warning", "error", "critical"} & set(levels)
