"""Writes adapters: random low-rank changes of a model, large enough to change what it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.support.models.ggufs import TYPE_BY_NAME, Gguf, Tensor, f32, text
from worker.gguf.splits import open_header

CHANGED = ("attn_q", "attn_v", "ffn_up", "ffn_down")


def lora_gguf(
    model: Path,
    *,
    seed: int = 1,
    rank: int = 4,
    alpha: float = 8.0,
    changed: Sequence[str] = CHANGED,
    name: str = "adapter",
) -> Gguf:
    """An adapter for the matrices of `model` that these names end."""
    header = open_header(model)
    rng = np.random.default_rng(seed)
    gguf = Gguf(
        keys={
            "general.architecture": text(str(header.keys["general.architecture"])),
            "general.type": text("adapter"),
            "general.name": text(name),
            "adapter.type": text("lora"),
            "adapter.lora.alpha": f32(alpha),
        }
    )
    for tensor in header.tensors:
        if not tensor.name.removesuffix(".weight").endswith(tuple(changed)):
            continue
        for part, shape in (("a", (tensor.shape[0], rank)), ("b", (rank, tensor.shape[1]))):
            values = rng.standard_normal(shape[::-1]) / np.sqrt(shape[0])
            data = values.astype("<f4").tobytes()
            gguf.tensors.append(
                Tensor(f"{tensor.name}.lora_{part}", shape, TYPE_BY_NAME["F32"], data)
            )
    return gguf


def write_lora(path: Path, model: Path, seed: int) -> Path:
    """An adapter of rank 4, another one for each seed."""
    return lora_gguf(model, seed=seed, name=path.stem).write(path)


def control_gguf(layers: Sequence[int], width: int, *, seed: int = 1) -> Gguf:
    """A control vector for these layers."""
    rng = np.random.default_rng(seed)
    gguf = Gguf(keys={"general.architecture": text("controlvector")})
    for layer in layers:
        data = (rng.standard_normal(width) / 4).astype("<f4").tobytes()
        gguf.tensors.append(Tensor(f"direction.{layer}", (width,), TYPE_BY_NAME["F32"], data))
    return gguf
