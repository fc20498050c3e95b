"""The files that this process has open."""

from __future__ import annotations

from pathlib import Path


def num_files() -> int:
    """How many descriptors there are, with the one that looks."""
    return len(list(Path("/dev/fd").iterdir()))
