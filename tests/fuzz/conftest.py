"""One child for all tests of this folder."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.fuzz.judge import FuzzJudge, fuzz_judge


@pytest.fixture(scope="package")
def judge() -> Generator[FuzzJudge]:
    """A child process that checks, loads and runs files."""
    with fuzz_judge() as made:
        yield made
