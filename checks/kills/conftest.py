"""The machine that pulls, of the command's own tests."""

from __future__ import annotations

from tests.cli.conftest import content, home, hub, large, machine

__all__ = ["content", "home", "hub", "large", "machine"]
