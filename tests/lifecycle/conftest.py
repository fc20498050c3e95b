"""Models for watching a worker from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import ggufs


@pytest.fixture(scope="session")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that loading, reading a prompt and decoding can be seen from outside."""
    path = tmp_path_factory.mktemp("models") / "slow.gguf"
    return ggufs.write_llama(path, layers=8, embedding=1024, feed_forward=2048, context=2048)
