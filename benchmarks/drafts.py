"""Writes two models, of which the small one guesses most tokens of the large one.

    python -m benchmarks.drafts llama-1b Q4_K_M target.gguf draft.gguf

Random weights continue no text alike, so both models get the same ones where it counts: the draft
model's embeddings and output are the first 256 columns of the target's. The target's last norm
passes only these columns on, and its embeddings are so large that its layers add little to them.
How large decides how often the draft model is right, whose only layer adds nothing. So the target
computes all that its shape takes, and the draft model is as fast as one of its width.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np

from benchmarks.models import RECIPES, SCALES, write_model
from benchmarks.shapes import SHAPES, ModelShape
from worker.gguf.header import TensorInfo
from worker.gguf.reader import read_header

WIDTH = 256  # a block of the K encodings
# What embeddings are multiplied by, so that 7 of 10 guesses are right (measured).
GAINS = {"llama-1b": 6500.0, "llama-125m": 2900.0}
_ADDING = ("attn_output.weight", "ffn_down.weight")


def write_pair(
    target: Path, draft: Path, shape: ModelShape, quant: str, gain: float, *, seed: int = 0
) -> None:
    """Write both models; `gain` is what the target's embeddings are multiplied by."""
    write_model(target, replace(shape, tied=False), quant, seed=seed)
    small = ModelShape(
        layers=1, embedding=WIDTH, heads=4, kv_heads=1, head_dim=64, feed_forward=768,
        vocab=shape.vocab, context=shape.context,
    )  # fmt: skip
    write_model(draft, small, quant, seed=seed)
    large, little = tensors_in(target), tensors_in(draft)
    for name, (info, data) in large.items():
        if name == "output_norm.weight":
            data.view(np.float32)[WIDTH:] = 0
        elif name == "token_embd.weight":
            _scale(info, data, gain)
    for name, (info, data) in little.items():
        if name.endswith(_ADDING):
            data[:] = 0
        elif name in ("token_embd.weight", "output.weight"):
            block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(info.type)][1]
            rows = large[name][1].reshape(shape.vocab, -1)
            data.reshape(shape.vocab, block)[:] = rows[:, :block]


def tensors_in(path: Path) -> dict[str, tuple[TensorInfo, np.ndarray]]:
    """Name -> what a file's header says of the tensor, and its bytes, which can be written."""
    header = read_header(path)
    return {
        info.name: (
            info, np.memmap(path, np.uint8, "r+", info.offset, (info.nbytes,))
        )
        for info in header.tensors
    }  # fmt: skip


def _scale(info: TensorInfo, data: np.ndarray, factor: float) -> None:
    """Multiply a tensor by `factor`, through the scales of its blocks."""
    kind = gguf.GGMLQuantizationType(info.type)
    blocks = data.reshape(-1, gguf.GGML_QUANT_SIZES[kind][1])
    for place in SCALES[kind]:
        if place is not None:
            halves = blocks[:, place : place + 2].copy().view(np.float16)
            blocks[:, place : place + 2] = (halves * np.float16(factor)).view(np.uint8)


def main() -> None:
    """Write one pair."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=GAINS)
    parser.add_argument("quant", choices=RECIPES)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--gain", type=float)
    given = parser.parse_args()
    gain = given.gain or GAINS[given.shape]
    write_pair(given.target, given.draft, SHAPES[given.shape], given.quant, gain)


if __name__ == "__main__":
    main()
