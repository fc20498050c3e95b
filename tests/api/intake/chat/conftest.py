"""One model with random weights for the tests of a folder."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.api.intake.chat.answers import Model
from tests.support.facts import facts_over
from tests.support.models import ggufs
from tests.support.sessions import load


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory) -> Generator[Model]:
    """What requests are made with."""
    path = ggufs.write_llama(tmp_path_factory.mktemp("models") / "model.gguf")
    with load(Path(path), num_cells=8192) as backend:
        yield Model(backend, facts_over(backend, path))
