"""One model with random weights for the tests of a folder."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.models import ggufs
from tests.support.sessions import load
from worker.lifecycle.loaded import Loaded
from worker.model.config import load_config
from worker.settings import Settings


@pytest.fixture(scope="package")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Generator[Loaded]:
    """What requests are made with."""
    path = ggufs.write_llama(tmp_path_factory.mktemp("models") / "model.gguf")
    with load(Path(path), num_cells=8192) as backend:
        yield cast(
            Loaded, SimpleNamespace(backend=backend, config=load_config(path), settings=Settings())
        )
