"""The property: a spoiled file is refused by us, or ends without a signal in llama.cpp.

Every truncation and every single-bit flip of the metadata of a small model, and mutations of its
structure. By default a sample of the bits is tried; with EXHAUSTIVE=1 all of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.models import ggufs
from tests.support.models.ggufs import (
    BOOL,
    F32,
    I8,
    I32,
    STR,
    U8,
    U16,
    U64,
    Gguf,
    Key,
    array,
    f32,
    text,
    u32,
)
from tests.support.models.native import LOADED, REFUSED, Judge, judge
from worker.errors import ModelFileError
from worker.model.config import load_config

EXHAUSTIVE = bool(os.environ.get("EXHAUSTIVE"))
STRIDE = 1 if EXHAUSTIVE else 101  # prime to 8, so that all bits of a byte come up


@pytest.fixture(scope="module")
def native() -> Generator[Judge]:
    """A child process with llama.cpp."""
    with judge() as child:
        yield child


def tiny(**options: Any) -> Gguf:
    """The smallest file that runs."""
    sizes: dict[str, Any] = {
        "layers": 1, "embedding": 32, "heads": 2, "kv_heads": 1, "feed_forward": 32,
        "vocab_size": 300, "tied": True,
    }  # fmt: skip
    return ggufs.llama_gguf(**(sizes | options))


def accepted(path: Path) -> bool:
    """Whether we accept the file. A refusal must be a ModelFileError and come within a second."""
    start = time.process_time()
    try:
        load_config(path)
    except ModelFileError:
        return False
    finally:
        assert time.process_time() - start < 1.0
    return True


def survives(path: Path, native: Judge) -> bool:
    """Whether we refuse the file, or llama.cpp ends without a signal."""
    return not accepted(path) or native.try_file(path) in (LOADED, REFUSED)


@pytest.mark.parametrize("vocab", ["spm", "bpe"])
def test_single_bits(vocab: Literal["spm", "bpe"], tmp_path: Path, native: Judge) -> None:
    """Whichever bit of the metadata is flipped: we refuse the file, or llama.cpp survives it."""
    model = tiny(vocab=vocab)
    data, size = bytearray(model.encode()), len(model.head())
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    assert native.try_file(path) == LOADED
    bad: list[int] = []
    with path.open("r+b", buffering=0) as file:
        for bit in range(0, size * 8, STRIDE):
            place = bit // 8
            file.seek(place)
            file.write(bytes([data[place] ^ 1 << bit % 8]))
            if not survives(path, native):
                bad.append(bit)
            file.seek(place)
            file.write(data[place : place + 1])
    assert bad == []


def test_truncations(tmp_path: Path, native: Judge) -> None:
    """Wherever the file is cut: we refuse it, or llama.cpp survives it."""
    model = tiny()
    data = model.encode()
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    stride = 1 if EXHAUSTIVE else 499
    cuts = [*range(len(data), len(model.head()), -stride), *range(len(model.head()), -1, -1)]
    bad: list[int] = []
    for cut in cuts:
        os.truncate(path, cut)
        if not survives(path, native):
            bad.append(cut)
    assert bad == []


NUMBERS = st.sampled_from((0, 1, 2, 3, 4, 7, 15, 16, 17, 31, 32, 33, 64, 255, 256, 299, 300, 301,
                           512, 513, 1024, 1025, 65_535, 65_536, 2**31 - 1, 2**31,
                           2**32 - 1))  # fmt: skip
FLOATS = st.sampled_from((0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, float("inf"), float("nan")))
VALUES = st.one_of(
    NUMBERS.map(u32),
    FLOATS.map(f32),
    NUMBERS.map(lambda n: Key(U64, n)),
    NUMBERS.map(lambda n: Key(I32, n % 2**31)),
    NUMBERS.map(lambda n: Key(U16, n % 2**16)),
    st.booleans().map(lambda flag: Key(BOOL, int(flag))),
    st.sampled_from(("", "llama", "gpt2", "yarn", "t5", "bert", "rwkv", "plamo2", "gemma4",
                     "none", "longrope", "linear", "whitespace", "llama-bpe", "é", "a\0b"))
    .map(text),
    st.lists(NUMBERS.map(lambda n: n % 2**31), max_size=3).map(lambda v: array(I32, v)),
    st.lists(NUMBERS, max_size=3).map(lambda v: array(ggufs.U32, v)),
    st.lists(FLOATS, max_size=300).map(lambda v: array(F32, v)),
    st.lists(st.integers(0, 255), max_size=12).map(lambda v: array(U8, v)),
    st.lists(st.integers(-128, 127), max_size=12).map(lambda v: array(I8, v)),
    st.lists(st.text(max_size=4), max_size=5).map(lambda v: array(STR, v)),
)  # fmt: skip
ARCH_KEYS = (
    "block_count", "context_length", "embedding_length", "embedding_length_out",
    "feed_forward_length", "vocab_size", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon",
    "attention.causal", "attention.scale", "attention.sliding_window",
    "attention.key_length_swa", "rope.dimension_count", "rope.dimension_count_swa",
    "rope.freq_base", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.attn_factor",
    "rope.scaling.original_context_length", "rope.scale_linear", "rope.dimension_sections",
    "expert_count", "expert_used_count", "expert_group_count", "expert_group_used_count",
    "expert_shared_count", "expert_feed_forward_length", "expert_shared_feed_forward_length",
    "nextn_predict_layers", "pooling_type", "classifier.output_labels", "logit_scale",
    "residual_scale", "embedding_scale",
)  # fmt: skip
OTHER_KEYS = (
    "general.architecture", "general.type", "general.name", "general.alignment",
    "general.file_type", "general.quantization_version", "split.count", "split.no",
    "split.tensors.count", "general.sampling.temp", "tokenizer.chat_template",
    *(f"tokenizer.ggml.{name}" for name in (
        "model", "pre", "tokens", "scores", "token_type", "merges", "token_type_count",
        "bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id", "unknown_token_id",
        "seperator_token_id", "padding_token_id", "mask_token_id", "fim_pad_token_id",
        "add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix",
        "remove_extra_whitespaces", "precompiled_charsmap", "suppress_tokens",
        "normalizer.lowercase")),
)  # fmt: skip
NAMES = st.one_of(st.sampled_from([f"llama.{key}" for key in ARCH_KEYS]),
                  st.sampled_from(OTHER_KEYS))  # fmt: skip


@dataclass
class Spoiled:
    """A changed model, shown by what was changed."""

    model: Gguf
    steps: list[str]

    def __repr__(self) -> str:
        return f"<{'; '.join(self.steps)}>"


@st.composite
def mutations(draw: st.DrawFn) -> Spoiled:
    """A small model with one to three changes to its keys, tokens or tensors."""
    vocab: Literal["spm", "bpe"] = draw(st.sampled_from(("spm", "bpe")))
    experts = draw(st.sampled_from((0, 0, 4)))
    model, steps = tiny(vocab=vocab, experts=experts), [f"{vocab}, {experts} experts"]
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(("set", "set", "set", "drop", "token", "tensor", "order")))
        if kind == "set":
            name, value = draw(NAMES), draw(VALUES)
            model.keys[name] = value
            steps.append(f"{name} = {value}")
        elif kind == "drop":
            name = str(draw(st.sampled_from(list(model.keys))))
            model.drop(name)
            steps.append(f"no {name}")
        elif kind == "token":
            steps.append(_change_element(draw, model))
        elif kind == "order":
            model.tensors = draw(st.permutations(model.tensors))
            steps.append("tensors in another order")
        else:
            steps.append(_change_tensor(draw, model))
    return Spoiled(model, steps)


def _change_element(draw: st.DrawFn, model: Gguf) -> str:
    name = draw(st.sampled_from(("tokens", "scores", "token_type", "merges")))
    key = model.keys.get(f"tokenizer.ggml.{name}")
    if not isinstance(key, Key) or not key.item or not key.value:
        return "nothing"
    values: list[Any] = [*key.value]
    place = draw(st.integers(0, len(values) - 1))
    choices: dict[int, st.SearchStrategy[Any]] = {
        STR: st.one_of(st.text(max_size=6), st.sampled_from(("", " ", "</s>", "<0x00>", "▁", "a b",
                                                             "<|end|>", "[EMPTY_3]"))),
        F32: FLOATS,
    }  # fmt: skip
    values[place] = draw(choices.get(key.item, st.integers(0, 9)))
    model.keys[f"tokenizer.ggml.{name}"] = array(key.item, values)
    return f"{name}[{place}] = {values[place]!r}"


def _change_tensor(draw: st.DrawFn, model: Gguf) -> str:
    tensor = draw(st.sampled_from(model.tensors))
    change = draw(st.sampled_from(("drop", "rename", "reverse", "type", "grow", "shape")))
    step = f"{change} {tensor.name!r}"
    if change == "drop":
        model.tensors.remove(tensor)
    elif change == "rename":
        tensor.name = draw(st.sampled_from(("output.weight", "rope_freqs.weight",
                                            "blk.0.attn_qkv.weight", "blk.0.attn_q.bias",
                                            "blk.1.attn_norm.weight", "x")))  # fmt: skip
        step += f" to {tensor.name}"
    elif change == "reverse":
        tensor.shape = tensor.shape[::-1]
    elif change == "type":
        kind = draw(st.sampled_from(("F16", "BF16", "Q8_0", "Q4_0", "I8", "I32", "F64", "MXFP4")))
        encoding = ggufs.ENCODINGS[ggufs.TYPE_BY_NAME[kind]]
        elements = len(tensor.data) // 4
        tensor.type = ggufs.TYPE_BY_NAME[kind]
        tensor.data = bytes(elements // encoding.block * encoding.nbytes)
        step += f" to {kind}"
    elif change == "grow":
        tensor.shape = (*tensor.shape[:-1], tensor.shape[-1] * 2)
        tensor.data *= 2
    else:
        tensor.shape = (*tensor.shape, 1) if len(tensor.shape) < 4 else tensor.shape
    return step


@given(spoiled=mutations())
@settings(
    max_examples=int(os.environ.get("EXAMPLES", "3000")) if EXHAUSTIVE else 250,
    deadline=None,
    derandomize=not EXHAUSTIVE,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_structures(spoiled: Spoiled, tmp_path: Path, native: Judge) -> None:
    """Whatever is changed in keys, tokens or tensors: we refuse it, or llama.cpp survives it."""
    assert survives(spoiled.model.write(tmp_path / "m.gguf"), native)
