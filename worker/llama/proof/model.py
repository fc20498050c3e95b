"""A tiny Llama of one layer in one encoding: its file, and its right answers in numpy.

The arithmetic is written from the definitions: RMSNorm (Zhang & Sennrich 2019), rotary embedding on
neighbouring pairs (Su et al. 2021), grouped-query attention (Ainslie et al. 2023), SwiGLU (Shazeer
2020), in float32 with exact activations.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from worker.llama.proof import blocks
from worker.llama.proof.blocks import BlockBytes, Rows32

ROWS = 512
"""Rows that there are answers for; fewer rows have the first ones of these."""

# Widths are multiples of 256, which the largest blocks have, and of the tiles that kernels work in.
_WIDTH, _HEADS, _KV_HEADS, _HEAD_WIDTH, _INNER, _VOCABULARY = 256, 4, 2, 64, 512, 256
_EPSILON, _BASE = 1e-5, 10_000.0
_SHAPES = {  # name -> rows and width
    "token_embd": (_VOCABULARY, _WIDTH),
    "blk.0.attn_q": (_HEADS * _HEAD_WIDTH, _WIDTH),
    "blk.0.attn_k": (_KV_HEADS * _HEAD_WIDTH, _WIDTH),
    "blk.0.attn_v": (_KV_HEADS * _HEAD_WIDTH, _WIDTH),
    "blk.0.attn_output": (_WIDTH, _HEADS * _HEAD_WIDTH),
    "blk.0.ffn_gate": (_INNER, _WIDTH),
    "blk.0.ffn_up": (_INNER, _WIDTH),
    "blk.0.ffn_down": (_WIDTH, _INNER),
    "output": (_VOCABULARY, _WIDTH),
}
# Attention that is no choice of one position: else a rounded key decides everything.
_SIZES = {"blk.0.attn_q": 0.7, "blk.0.attn_k": 0.7}
_NORMS = ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")
TOKENS = np.random.default_rng(7).integers(0, _VOCABULARY, ROWS, np.int32)
"""The text, int32 [ROWS]."""


class ProofModel:
    """Random weights in the encoding `name`; equal names give equal ones."""

    def __init__(self, name: str) -> None:
        random = np.random.default_rng(sum(name.encode()))
        self.name = name
        self._data: dict[str, BlockBytes] = {}
        self._values: dict[str, Rows32] = {}
        for tensor, (rows, width) in _SHAPES.items():
            size = width**-0.5 * _SIZES.get(tensor, 1.0)
            data = blocks.weights(name, rows, width, size, random)
            self._data[tensor], self._values[tensor] = data, blocks.values(name, data)
        for tensor in _NORMS:
            self._values[tensor] = random.uniform(0.5, 1.5, _WIDTH).astype(np.float32)

    def write(self, path: Path) -> None:
        """Write it as a GGUF file that llama.cpp loads."""
        kind = next(each for each in gguf.GGMLQuantizationType if each.name == self.name)
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_block_count(1)
        writer.add_context_length(ROWS)
        writer.add_embedding_length(_WIDTH)
        writer.add_feed_forward_length(_INNER)
        writer.add_head_count(_HEADS)
        writer.add_head_count_kv(_KV_HEADS)
        writer.add_layer_norm_rms_eps(_EPSILON)
        writer.add_rope_freq_base(_BASE)
        writer.add_vocab_size(_VOCABULARY)
        writer.add_tokenizer_model("no_vocab")
        for tensor, data in self._data.items():
            writer.add_tensor(f"{tensor}.weight", data, raw_dtype=kind)
        for tensor in _NORMS:
            writer.add_tensor(f"{tensor}.weight", self._values[tensor])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def logits(self) -> Rows32:
        """[ROWS, vocabulary], of each position of TOKENS."""
        x = self._values["token_embd"][TOKENS]
        x = x + self._attention(self._norm(x, "blk.0.attn_norm"))
        x = x + self._feed_forward(self._norm(x, "blk.0.ffn_norm"))
        return self._product(self._norm(x, "output_norm"), "output")

    def _norm(self, x: Rows32, name: str) -> Rows32:
        return x / np.sqrt((x**2).mean(1, keepdims=True) + _EPSILON) * self._values[name]

    def _product(self, x: Rows32, name: str) -> Rows32:
        return x @ self._values[name].T

    def _attention(self, x: Rows32) -> Rows32:
        shape = (len(x), -1, _HEAD_WIDTH)
        q = _rotate(self._product(x, "blk.0.attn_q").reshape(shape))
        k = _rotate(self._product(x, "blk.0.attn_k").reshape(shape))
        v = self._product(x, "blk.0.attn_v").reshape(shape)
        is_later = np.triu(np.ones((len(x), len(x)), bool), 1)
        heads: list[Rows32] = []
        for head in range(_HEADS):
            group = head // (_HEADS // _KV_HEADS)
            scores = q[:, head] @ k[:, group].T / np.float32(_HEAD_WIDTH**0.5)
            scores[is_later] = -np.inf
            shares = np.exp(scores - scores.max(1, keepdims=True))
            heads.append(shares / shares.sum(1, keepdims=True) @ v[:, group])
        return self._product(np.concatenate(heads, 1), "blk.0.attn_output")

    def _feed_forward(self, x: Rows32) -> Rows32:
        gate = self._product(x, "blk.0.ffn_gate")
        inner = gate / (1 + np.exp(-gate)) * self._product(x, "blk.0.ffn_up")
        return self._product(inner.astype(np.float32), "blk.0.ffn_down")


def _rotate(x: Rows32) -> Rows32:
    """Turns the pair (2i, 2i+1) of each head of [rows, heads, width] by row · base^(-2i/width)."""
    frequencies = _BASE ** (-np.arange(0, _HEAD_WIDTH, 2) / _HEAD_WIDTH)
    angles = np.outer(np.arange(len(x)), frequencies).astype(np.float32)[:, None, :]
    cosines, sines = np.cos(angles), np.sin(angles)
    turned = np.empty_like(x)
    turned[..., 0::2] = x[..., 0::2] * cosines - x[..., 1::2] * sines
    turned[..., 1::2] = x[..., 0::2] * sines + x[..., 1::2] * cosines
    return turned
