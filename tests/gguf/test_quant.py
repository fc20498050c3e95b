"""Encodings: sizes against gguf's table, names and labels."""

from __future__ import annotations

from pathlib import Path

import gguf
import llama_cpp.llama_cpp as native
import pytest

from tests.support.cases import for_each
from tests.support.models import ggufs
from worker.gguf.quant import (
    ENCODINGS,
    FILE_TYPES,
    bits_per_weight,
    label_in_name,
    label_of,
    mix_of,
)
from worker.model.config import load_config


def test_sizes_are_those_of_gguf() -> None:
    """Each encoding that gguf-py knows has its name, block length and bytes."""
    for kind, (block, nbytes) in gguf.GGML_QUANT_SIZES.items():
        encoding = ENCODINGS[int(kind)]
        assert (encoding.name, encoding.block, encoding.nbytes) == (kind.name, block, nbytes)
    newer = ENCODINGS.keys() - {int(kind) for kind in gguf.GGML_QUANT_SIZES}
    assert {ENCODINGS[kind].name for kind in newer} <= {"Q2_0"}


def test_file_types_are_those_of_llama_cpp() -> None:
    """Each file type has the number that gguf-py and the pinned bindings give it."""
    theirs = {int(kind): kind.name for kind in gguf.LlamaFileType}
    for number, (label, base) in FILE_TYPES.items():
        if number in theirs:
            assert theirs[number].removeprefix("MOSTLY_").removeprefix("ALL_") == label
        assert base in {encoding.name for encoding in ENCODINGS.values()}
    for name, number in vars(native).items():
        if name.startswith("LLAMA_FTYPE_MOSTLY_") and number in FILE_TYPES:
            assert FILE_TYPES[number][0] == name.removeprefix("LLAMA_FTYPE_MOSTLY_")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("llama-2-7b.Q5_K_S.gguf", "Q5_K_S"),
        ("Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("model-IQ2_XXS.gguf", "IQ2_XXS"),
        ("model.i1-IQ3_M.gguf", "IQ3_M"),
        ("gemma-3-27b-it-q4_0.gguf", "Q4_0"),
        ("big-Q8_0-00001-of-00004.gguf", "Q8_0"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("model-BF16.gguf", "BF16"),
        ("model-f16.gguf", "F16"),
        ("q4_k_m-notes-about-nothing.gguf", "Q4_K_M"),
        ("ggml-model.gguf", None),
        ("notQ4_0here.gguf", None),
    ],
)
def test_labels_in_names(name: str, label: str | None) -> None:
    """A label is found in published kinds of names, and only where it stands alone."""
    assert label_in_name(name) == label


@pytest.mark.parametrize(
    ("file_type", "mix", "name", "label"),
    [
        (15, {"Q4_K": 10, "Q6_K": 3, "F32": 1}, "liar-Q8_0.gguf", "Q4_K_M"),
        (15, {"Q4_K": 10}, "model-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        (15, {"Q4_K": 10}, "model-Q4_K_S.gguf", "Q4_K_M"),
        (7, {"Q4_K": 10, "F32": 1}, "model.gguf", "Q4_K"),
        (7, {"Q4_K": 10, "F32": 1}, "model-Q4_K_M.gguf", "Q4_K_M"),
        (None, {"Q5_K": 10, "F32": 1}, "model-Q5_K_S.gguf", "Q5_K_S"),
        (None, {"Q5_K": 10, "F32": 1}, "model-Q8_0.gguf", "Q5_K"),
        (999, {"MXFP4": 10}, "model.gguf", "MXFP4"),
        (1024 + 7, {"Q8_0": 10}, "model.gguf", "Q8_0"),
        (1, {}, "vocab.gguf", "F16"),
        (None, {}, "vocab.gguf", "unknown"),
    ],
)
def test_one_label(file_type: int | None, mix: dict[str, int], name: str, label: str) -> None:
    """Metadata counts first, where the mix agrees with it; then the mix, then the file's name."""
    shares = mix_of(
        (ggufs.TYPE_BY_NAME[kind], elements, elements) for kind, elements in mix.items()
    )
    assert label_of(file_type, shares, name) == label


@for_each("kind", ggufs.QUANTIZED)
def test_the_mix_of_a_quantised_file(kind: str, tmp_path: Path) -> None:
    """The mix counts tensors, elements and bytes of each encoding, the largest first."""
    config = load_config(ggufs.write_llama(tmp_path / "m.gguf", encoding=kind))
    assert list(config.mix) == [kind, "F32"]
    assert config.mix["F32"].tensors == 5
    assert sum(share.elements for share in config.mix.values()) == config.n_params
    assert sum(share.nbytes for share in config.mix.values()) == config.size_bytes
    encoding = ENCODINGS[ggufs.TYPE_BY_NAME[kind]]
    assert config.mix[kind].nbytes == config.mix[kind].elements // encoding.block * encoding.nbytes
    assert encoding.bits < config.bits_per_weight < encoding.bits + 0.5
    assert config.n_embedding_params == 2 * config.embedding * config.vocab_size


def test_bits_per_weight() -> None:
    """Bits per weight is bytes times eight over elements, and 0 of nothing."""
    assert bits_per_weight(32, 18) == 4.5
    assert bits_per_weight(0, 0) == 0.0
