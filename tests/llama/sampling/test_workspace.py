"""Two ways from a mask to its tokens."""

from __future__ import annotations

import numpy as np
import pytest

from worker.llama.sampling.workspace import Workspace


@pytest.mark.parametrize("size", [5, 32, 1_000, 32_000])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.5, 1.0])
def test_tokens_of_a_mask(size: int, share: float) -> None:
    """The few that are looked up are those that the whole row keeps; many are not looked up."""
    draw = np.random.default_rng(size)
    workspace = Workspace(size)
    for _ in range(5):
        bits = draw.random(len(workspace.mask.words) * 32) < share
        bits[size:] = False
        workspace.mask.words[:] = np.packbits(bits, bitorder="little").view(np.uint32)
        row = draw.standard_normal(size).astype(np.float32)
        masked = workspace.mask_row(row)
        assert np.array_equal(masked, np.where(bits[:size], row, np.float32(-np.inf)))
        ids = workspace.allowed_ids()
        assert ids is None or np.array_equal(ids, np.flatnonzero(bits))
        if size == 32_000:
            assert (ids is None) == (share > 0.001)
