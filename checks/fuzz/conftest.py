"""One child for all tests of this folder."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import pytest

from checks.fuzz.judge import FuzzJudge


@pytest.fixture(scope="package")
def judge() -> Generator[FuzzJudge]:
    """A child process that checks, loads and runs files."""
    with closing(FuzzJudge()) as made:
        yield made
