"""The demo model as a user meets it."""

from __future__ import annotations

import json

from tests.support.programs.processes import serving


def test_it_is_served_without_a_warning() -> None:
    """llama.cpp finds nothing wrong with our own model."""
    with serving("--verbose") as server:
        entries = [json.loads(line) for line in server.lines]
    levels = {entry["level"] for entry in entries if entry["part"] == "llama.cpp"}
    assert levels == {"debug"}
