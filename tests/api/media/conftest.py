"""A server over a tiny model that sees."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.models.projectors import write_llava
from tests.support.programs.processes import Server, serving


@pytest.fixture(scope="session")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model; its projector lies beside it."""
    return write_llava(tmp_path_factory.mktemp("llava"))[0]


@pytest.fixture(scope="module")
def seeing(llava: Path) -> Generator[Server]:
    with serving("--model", llava, "--ctx-size", "4096", "-np", "4") as running:
        yield running
