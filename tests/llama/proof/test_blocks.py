"""Random weights in each encoding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases import for_each
from tests.support.models.ggufs import QUANTIZED
from worker.llama.proof import blocks


def test_all_encodings_are_there() -> None:
    """What a model may be quantised in is proven, but for what the package gguf cannot write."""
    assert set(QUANTIZED) - set(blocks.PROVEN) == {"Q2_0"}
    assert {"F32", "F16", "BF16"} < set(blocks.PROVEN)
    assert len(set(blocks.PROVEN)) == len(blocks.PROVEN)


@for_each("name", blocks.PROVEN)
def test_weights_have_the_size_that_was_asked_for(name: str) -> None:
    """They are finite, of both signs, about as large as asked, and differ from row to row: so a
    sum that leaves out or exchanges blocks is another one."""
    made = blocks.weights(name, 64, 512, 0.05, np.random.default_rng(1))
    values = blocks.values(name, made)
    assert values.shape == (64, 512)
    assert np.isfinite(values).all()
    assert values.std() == pytest.approx(0.05, rel=0.6)
    assert abs(values.mean()) < 0.01
    assert len({row.tobytes() for row in values}) == 64
