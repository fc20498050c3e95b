"""An adapter's file: what it says, and that a wrong one is refused before native code sees it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from tests.support.models import ggufs
from tests.support.models.adapters import lora_gguf
from tests.support.models.ggufs import Gguf, array, text, u32
from tests.support.models.spoiled import Change, Row, dropped, extra, keyed, rows, tensor
from worker.errors import ModelFileError
from worker.model.adapter import load_adapter
from worker.model.checks import model as checks

A, B = "blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"


def moved(g: Gguf) -> None:
    for part in "ab":
        renamed(f"blk.0.attn_q.weight.lora_{part}", f"blk.7.attn_q.weight.lora_{part}")(g)


def spoil(name: str, shape: tuple[int, ...]) -> Change:
    """Another shape of a tensor, and as many bytes as it needs."""
    return tensor(name, shape=shape, data=bytes(4 * math.prod(shape)))


def renamed(old: str, new: str) -> Change:
    return tensor(old, name=new)


ALONE: list[Row] = [
    ("a model", "NOT_ADAPTER", lambda g: g.drop("general.type", "adapter.type")),
    ("another type", "BAD_VALUE", keyed("general.type", text("model"))),
    ("no adapter type", "BAD_VALUE", dropped("adapter.type")),
    ("a control vector", "BAD_VALUE", keyed("adapter.type", text("control_vector"))),
    ("type is a number", "WRONG_TYPE", keyed("adapter.type", u32(1))),
    ("alpha is a whole number", "WRONG_TYPE", keyed("adapter.lora.alpha", u32(8))),
    ("unknown architecture", "UNKNOWN_ARCHITECTURE", keyed("general.architecture", text("lama"))),
    ("invoked by no array", "WRONG_TYPE", keyed("adapter.alora.invocation_tokens", u32(1))),
    ("invoked by other numbers", "WRONG_TYPE",
     keyed("adapter.alora.invocation_tokens", array(ggufs.I32, [1, 2]))),
    ("no tensors", "NO_TENSORS", lambda g: setattr(g, "tensors", [])),
    ("a without b", "MISSING_TENSOR", dropped(B)),
    ("b without a", "MISSING_TENSOR", dropped(A)),
    ("a norm", "ADAPTER_KIND", extra("blk.0.attn_norm.weight", (64,), 0, bytes(256))),
    ("another suffix", "ADAPTER_KIND", renamed(A, "blk.0.attn_q.weight.lora_c")),
    ("whole numbers", "TENSOR_TYPE", tensor(A, type=26)),
    ("ranks differ", "TENSOR_SHAPE", spoil(A, (64, 8))),
    ("a is not transposed", "TENSOR_SHAPE", spoil(A, (4, 64))),
    ("one is of experts", "TENSOR_SHAPE", spoil(A, (64, 4, 2))),
]  # fmt: skip
BESIDE: list[Row] = [
    ("another architecture", "ADAPTER_MISMATCH", keyed("general.architecture", text("qwen2"))),
    ("a block that is not there", "ADAPTER_MISMATCH", moved),
    ("longer rows", "ADAPTER_MISMATCH", spoil(A, (96, 4))),
    ("more rows", "ADAPTER_MISMATCH", spoil(B, (4, 96))),
    ("invoked by no token", "ADAPTER_MISMATCH",
     keyed("adapter.alora.invocation_tokens", array(ggufs.U32, [1, 320]))),
]  # fmt: skip


@pytest.mark.parametrize(("code", "change"), rows(ALONE, BESIDE))
def test_refused(tiny: Path, tmp_path: Path, code: str, change: Change) -> None:
    """In one sentence, with the next step and a code that is listed."""
    gguf = lora_gguf(tiny)
    change(gguf)
    path = gguf.write(tmp_path / "wrong.gguf")
    with pytest.raises(ModelFileError) as caught:
        load_adapter(path, tiny)
    error = caught.value
    assert error.code == code
    assert re.search(rf"\b{error.code}\b", checks.__doc__ or "")
    assert error.message.endswith(".")
    assert error.hint
    assert "\n" not in str(error)


def test_what_it_is(tiny: Path, tmp_path: Path) -> None:
    """Its rank, its alpha and how much it changes; also where a model has experts."""
    found = load_adapter(lora_gguf(tiny).write(tmp_path / "one.gguf"), tiny)
    assert (found.rank, found.alpha, found.matrices) == (4, 8.0, 8)
    assert found.summary == "a LoRA adapter for llama models: rank 4, alpha 8, 8 matrices"
    gguf = lora_gguf(tiny)
    gguf.keys["adapter.alora.invocation_tokens"] = array(ggufs.U32, [7, 8])
    activated = load_adapter(gguf.write(tmp_path / "activated.gguf"), tiny)
    assert activated.invocation == (7, 8)
    assert activated.summary.startswith("an activated LoRA adapter for llama models")
    experts = ggufs.write_llama(tmp_path / "experts.gguf", experts=4)
    gguf = lora_gguf(experts, changed=("attn_q",))
    for part, shape in (("a", (64, 2, 4)), ("b", (2, 128, 4))):
        extra(f"blk.1.ffn_up_exps.weight.lora_{part}", shape, 0, bytes(4 * math.prod(shape)))(gguf)
    found = load_adapter(gguf.write(tmp_path / "two.gguf"), experts)
    assert found.matrices == 3
    gguf.drop("blk.1.ffn_up_exps.weight.lora_a", "blk.1.ffn_up_exps.weight.lora_b")
    for part, shape in (("a", (64, 2, 2)), ("b", (2, 128, 2))):
        extra(f"blk.1.ffn_up_exps.weight.lora_{part}", shape, 0, bytes(4 * math.prod(shape)))(gguf)
    with pytest.raises(ModelFileError, match="as if it had the shape"):
        load_adapter(gguf.write(tmp_path / "three.gguf"), experts)


def test_embeddings_are_the_other_way_round(tiny: Path, tmp_path: Path) -> None:
    """A and B of the rows that are looked up, as llama.cpp's converter writes them."""
    gguf = lora_gguf(tiny, changed=("attn_q",))
    for part, length in (("a", 320), ("b", 64)):
        name = f"token_embd.weight.lora_{part}"
        extra(name, (4, length), 0, bytes(4 * 4 * length))(gguf)
    path = gguf.write(tmp_path / "one.gguf")
    assert load_adapter(path, tiny).matrices == 3
