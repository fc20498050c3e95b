"""The orders in which the CPU keeps weights, against what llama.cpp does when it loads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models import ggufs
from worker.gguf.quant import ENCODINGS
from worker.llama.packing import packed_encodings
from worker.llama.weights import LoadOptions, Weights
from worker.model.config import load_config


@pytest.mark.parametrize(
    "encoding", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
)
def test_llama_cpp_keeps_what_the_library_packs(tmp_path: Path, encoding: str) -> None:
    """Matrices of these encodings alone go into buffers of their own, and take so many bytes."""
    path = ggufs.write_llama(
        tmp_path / "m.gguf", encoding=encoding, layers=4, embedding=512, heads=8, kv_heads=4
    )
    with Weights(path, LoadOptions(n_gpu_layers=0, devices=())) as weights:
        buffers = dict(weights.residency.buffers)
    special = sum(size for name, size in buffers.items() if name not in ("CPU", "CPU_Mapped"))
    growths = {packed.name: packed.growth for packed in packed_encodings()}
    expected = load_config(path).matrix_bytes[encoding] * growths.get(encoding, 0)
    assert special == pytest.approx(expected, rel=0.01, abs=2**14)


def test_each_order_is_told_once() -> None:
    """Names are ggml's, no order is smaller than half of the file's, rows are whole tiles."""
    found = packed_encodings()
    assert len({packed.name for packed in found}) == len(found)
    for packed in found:
        assert packed.name in {encoding.name for encoding in ENCODINGS.values()}
        assert 0.5 < packed.growth < 2
        assert packed.rows in (1, 4, 8, 16, 32, 64)
