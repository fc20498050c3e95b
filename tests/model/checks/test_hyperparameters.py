"""Numbers about a model that native code would abort on."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.support.cases import for_each
from tests.support.models import ggufs
from tests.support.models.ggufs import (
    F32,
    I32,
    STR,
    Key,
    array,
    f32,
    text,
    u32,
)
from tests.support.models.spoiled import (
    Change,
    Row,
    all_of,
    dropped,
    keyed,
    refused,
    rows,
    small,
    write_spoiled,
)
from worker.errors import ModelFileError
from worker.model.config import load_config

VALUES: list[Row] = [
    *((f"{key} missing", "MISSING_KEY", dropped(f"llama.{key}")) for key in (
        "block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon")),
    *((f"block_count {n}", "BAD_VALUE", keyed("llama.block_count", u32(n)))
      for n in (0, 513, 100_000, 2**32 - 1)),
    *((f"block_count as {name}", "WRONG_TYPE", keyed("llama.block_count", value))
      for name, value in (("negative INT32", Key(I32, -1)), ("float", f32(2.0)),
                          ("string", text("2")), ("array", array(ggufs.U32, [2])))),
    ("embedding_length 0", "BAD_VALUE", keyed("llama.embedding_length", u32(0))),
    ("embedding_length ≠ token_embd ne[0]", "TENSOR_SHAPE",
     all_of(keyed("llama.embedding_length", u32(64)), dropped("llama.rope.dimension_count"))),
    ("head_count > embedding_length", "BAD_VALUE", keyed("llama.attention.head_count", u32(64))),
    ("embedding_length % head_count ≠ 0", "BAD_VALUE",
     keyed("llama.attention.head_count", u32(3))),
    ("head_count_kv 0 on a transformer", "BAD_VALUE",
     keyed("llama.attention.head_count_kv", u32(0))),
    ("head_count_kv > head_count", "BAD_VALUE", keyed("llama.attention.head_count_kv", u32(4))),
    ("head_count_kv not a divisor", "BAD_VALUE",
     all_of(keyed("llama.attention.head_count", u32(4)),
            keyed("llama.attention.head_count_kv", u32(3)))),
    ("head_count array of wrong length", "BAD_VALUE",
     keyed("llama.attention.head_count", array(I32, [2, 2, 2]))),
    ("head_count array containing 0", "BAD_VALUE",
     keyed("llama.attention.head_count", array(I32, [2, 0]))),
    ("head_count array of strings", "WRONG_TYPE",
     keyed("llama.attention.head_count", array(STR, ["2", "2"]))),
    ("key_length ≠ value_length on a Llama", "BAD_VALUE",
     keyed("llama.attention.value_length", u32(8))),
    *((f"rope.dimension_count {n}", "BAD_VALUE", keyed("llama.rope.dimension_count", u32(n)))
      for n in (0, 8, 15, 64)),
    *((f"rope.freq_base {n}", "BAD_VALUE", keyed("llama.rope.freq_base", f32(n)))
      for n in (0.0, -1.0)),
    *((f"rope.scaling.factor {n}", "BAD_VALUE", keyed("llama.rope.scaling.factor", f32(n)))
      for n in (0.0, -2.0, float("nan"))),
    ("rope.scaling.type foo", "BAD_VALUE", keyed("llama.rope.scaling.type", text("foo"))),
    *((f"context_length {n}", "BAD_VALUE", keyed("llama.context_length", u32(n)))
      for n in (0, 2**32 - 1)),
    ("feed_forward_length 0", "BAD_VALUE", keyed("llama.feed_forward_length", u32(0))),
    ("feed_forward_length wrong array length", "BAD_VALUE",
     keyed("llama.feed_forward_length", array(I32, [32]))),
    *((f"norm epsilon {n}", "BAD_VALUE",
       keyed("llama.attention.layer_norm_rms_epsilon", f32(n)))
      for n in (0.0, -1e-5, float("nan"))),
    ("expert_count > native max", "BAD_VALUE",
     all_of(keyed("llama.expert_count", u32(1025)), keyed("llama.expert_used_count", u32(2)))),
    ("expert_used 0", "BAD_VALUE", keyed("llama.expert_count", u32(4))),
    ("expert_used > expert_count", "BAD_VALUE",
     all_of(keyed("llama.expert_count", u32(4)), keyed("llama.expert_used_count", u32(5)))),
    ("expert_used without experts", "BAD_VALUE", keyed("llama.expert_used_count", u32(1))),
    ("expert groups that do not divide", "BAD_VALUE",
     all_of(keyed("llama.expert_count", u32(4)), keyed("llama.expert_used_count", u32(2)),
            keyed("llama.expert_group_count", u32(3)))),
    ("nextn_predict_layers = block_count", "BAD_VALUE",
     keyed("llama.nextn_predict_layers", u32(2))),
]  # fmt: skip


@for_each(("code", "change"), rows(VALUES))
def test_a_number_that_cannot_be(code: str, change: Change, tmp_path: Path) -> None:
    """The file is refused with its own code, one sentence and the next step."""
    assert refused(write_spoiled(tmp_path, change)).code == code


def test_a_vocabulary_with_an_absurd_number_of_layers(tmp_path: Path) -> None:
    """Numbers about the model are bounded where only the vocabulary is read, too."""
    model = ggufs.vocab_gguf()
    model.keys["llama.block_count"] = u32(2**32 - 1)
    with pytest.raises(ModelFileError) as caught:
        load_config(model.write(tmp_path / "v.gguf"), purpose="inspect")
    assert caught.value.code == "BAD_VALUE"


def test_errors_say_where(tmp_path: Path) -> None:
    """An error about a key carries the byte offset of its value, the key and both values."""
    model = small()
    model.keys["llama.rope.freq_base"] = f32(-1.0)
    path = model.write(tmp_path / "m.gguf")
    error = refused(path)
    assert error.field == "llama.rope.freq_base"
    assert error.got == -1.0
    assert error.limit == "above 0"
    assert error.offset is not None
    assert path.read_bytes()[error.offset : error.offset + 4] == struct.pack("<f", -1.0)
    assert F32 == 6
