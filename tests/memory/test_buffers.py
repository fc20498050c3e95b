"""Weights that are stored in another order than the file's."""

from __future__ import annotations

import pytest

from worker.demo import MODEL_PATH
from worker.memory import buffers
from worker.model.config import ModelConfig, load_config


@pytest.mark.parametrize(
    ("features", "copies"), [(None, 1), ({"SSE3", "AVX2"}, 1), ({"SSE3", "AVX"}, 0)]
)
def test_what_is_reordered_depends_on_the_features_in_use(
    features: set[str] | None, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tied embedding is stored twice only where the CPU's kernels want it in another order."""
    monkeypatch.setattr(buffers.platform, "machine", lambda: "x86_64")

    def tied(_config: ModelConfig) -> tuple[str, int, bool]:
        return "Q4_0", 1000, True

    monkeypatch.setattr(buffers, "token_embedding", tied)
    config = load_config(MODEL_PATH)
    known = None if features is None else frozenset(features)
    assert buffers.weights_bytes(config, known) == config.size_bytes + 1000 * copies
