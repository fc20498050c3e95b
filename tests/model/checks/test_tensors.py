"""Tensors that do not make the model that the keys describe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models.ggufs import (
    Gguf,
    u32,
)
from tests.support.models.spoiled import (
    KINDS,
    SCORES,
    TOKENS,
    Change,
    Row,
    all_of,
    both_sizes,
    dropped,
    extra,
    keyed,
    listed,
    refused,
    rows,
    tensor,
    write_spoiled,
)


def moved_block(g: Gguf) -> None:
    """Block 1 under the number 2."""
    for each in g.tensors:
        each.name = str(each.name).replace("blk.1.", "blk.2.")


TENSORS: list[Row] = [
    ("vocab_size ≠ tokens", "VOCAB_MISMATCH", both_sizes),
    ("tokens ≠ token_embd ne[1]", "VOCAB_MISMATCH",
     all_of(listed(TOKENS, lambda v: v[:-1]), listed(SCORES, lambda v: v[:-1]),
            listed(KINDS, lambda v: v[:-1]), keyed("llama.vocab_size", u32(299)))),
    ("output ne[1] ≠ tokens", "VOCAB_MISMATCH",
     tensor("output.weight", shape=(32, 299), data=bytes(32 * 299 * 4))),
    *((f"required tensor missing: {name}", "MISSING_TENSOR", dropped(name)) for name in (
        "token_embd.weight", "output_norm.weight",
        *(f"blk.1.{part}.weight" for part in (
            "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate",
            "ffn_down", "ffn_up")))),
    ("layer gap: blk.0, blk.2", "TENSOR_LAYER",
     all_of(moved_block, keyed("llama.block_count", u32(3)))),
    ("blk.99 ≥ block_count", "TENSOR_LAYER",
     extra("blk.99.attn_norm.weight", (32,), data=bytes(128))),
    ("right name, wrong shape", "TENSOR_SHAPE",
     tensor("blk.0.attn_k.weight", shape=(32, 32), data=bytes(4096))),
    ("right name, transposed", "TENSOR_SHAPE", tensor("blk.0.attn_k.weight", shape=(16, 32))),
]  # fmt: skip


@pytest.mark.parametrize(("code", "change"), rows(TENSORS))
def test_tensors_of_another_model(code: str, change: Change, tmp_path: Path) -> None:
    """The file is refused with its own code, one sentence and the next step."""
    assert refused(write_spoiled(tmp_path, change)).code == code
