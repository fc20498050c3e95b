"""A model on the GPU: where it is, what it takes there, what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks.gpu.conftest import Accelerator
from tests.support.models import ggufs
from tests.support.placements import assert_planned
from tests.support.programs.offloaded import LAYERS, Loaded, load, settings
from worker.demo import MODEL_PATH
from worker.llama.quantize.target import quantize

# Kernels of another device add in another order; logits of the demo model reach 20.
ROUNDING = 0.25


@pytest.fixture(scope="module", params=["F16", "Q4_K_M", "Q8_0"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model in usual encodings."""
    if request.param == "F16":
        return MODEL_PATH
    path = tmp_path_factory.mktemp("models") / f"demo-{request.param}.gguf"
    quantize(MODEL_PATH, path, request.param, threads=1)
    return path


@pytest.fixture(scope="module")
def on_cpu(model: Path) -> Loaded:
    return load(model, settings())


@pytest.mark.parametrize("layers", [1, 3, -1])
def test_layers_are_where_they_were_asked_to(
    gpu: Accelerator, model: Path, on_cpu: Loaded, layers: int
) -> None:
    """So many of the last layers with their cells; the likeliest token is the CPU's, and logits
    differ by rounding alone."""
    loaded = load(model, gpu.settings(layers))
    there = LAYERS if layers < 0 else layers
    assert loaded.layers == ("CPU",) * (LAYERS - there) + (gpu.name,) * there
    assert loaded.kv == tuple(enumerate(loaded.layers[:-1]))
    found, expected = np.array(loaded.logits), np.array(on_cpu.logits)
    assert np.argmax(found) == np.argmax(expected)
    assert np.abs(found - expected).max() < ROUNDING


def test_alone_it_says_one_text(gpu: Accelerator, model: Path) -> None:
    """The same tokens and the same logits, to the bit, in each process."""
    first, second = (load(model, gpu.settings(-1)) for _ in range(2))
    assert (first.tokens, first.logits) == (second.tokens, second.logits)


@pytest.mark.parametrize(
    ("layers", "given"),
    [
        (3, {"ctx_size": 4096}),
        (-1, {"ctx_size": 4096}),
        (-1, {"ctx_size": 8192, "ubatch_size": 256}),
        (-1, {"ctx_size": 2048, "cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
    ],
)
@pytest.mark.parametrize("encoding", ["F16", "Q4_K", "Q8_0"])
def test_the_plan_is_what_is_allocated(
    gpu: Accelerator, tmp_path: Path, encoding: str, layers: int, given: dict[str, Any]
) -> None:
    """Within 5 % on each device."""
    shape = {"layers": 6, "embedding": 512, "heads": 8, "kv_heads": 2, "feed_forward": 1536}
    path = ggufs.write_llama(tmp_path / "m.gguf", encoding=encoding, context=8192, **shape)
    loaded = load(path, gpu.settings(layers, **given))
    assert_planned(loaded.planned, loaded.allocated)
