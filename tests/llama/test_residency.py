"""Whether offloaded layers stayed on the host, where the CPU's own order of weights is larger."""

from __future__ import annotations

import pytest

from worker.errors import ResidencyError
from worker.gguf.header import TensorInfo
from worker.llama import residency
from worker.llama.residency import WeightsResidency, check_tensors
from worker.machine import PackedEncoding

Q8_0, BLOCK = 8, 34 << 20
LAYERS = 20
GROWN = PackedEncoding("Q8_0", 38 / 34, 32)


def tensors() -> list[TensorInfo]:
    """A matrix of one size in each layer."""
    return [
        TensorInfo(f"blk.{i}.ffn_up.weight", (1024, 1 << 15), Q8_0, 0, 0, BLOCK, 1 << 25)
        for i in range(LAYERS)
    ]


def loaded(on_host: int, held: float) -> WeightsResidency:
    """The first layers assigned to the host, which holds so many bytes of weights."""
    places = ("CPU",) * on_host + ("RPC0",) * (LAYERS + 1 - on_host)
    return WeightsResidency(places, (("AMX", int(held)),))


def test_a_larger_order_is_no_stray_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What AMX's tiles add to the layers of the host is not taken for a layer that stayed there."""
    monkeypatch.setattr(residency, "packed_encodings", lambda: (GROWN,))
    on_host = LAYERS - 1
    check_tensors(loaded(on_host, on_host * BLOCK * GROWN.growth), tensors(), ["RPC0"])


def test_a_stray_layer_is_seen_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer more than belongs on the host is refused, in that order too."""
    monkeypatch.setattr(residency, "packed_encodings", lambda: (GROWN,))
    held = LAYERS * BLOCK * GROWN.growth
    with pytest.raises(ResidencyError, match="stayed on the CPU"):
        check_tensors(loaded(LAYERS - 1, held), tensors(), ["RPC0"])
