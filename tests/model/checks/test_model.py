"""GGUF files that are no model to generate with, and what a policy lets pass."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from tests.support.models.ggufs import (
    text,
    u32,
)
from tests.support.models.spoiled import (
    KINDS,
    MERGES,
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
    patched,
    refused,
    rows,
    small,
    tensor,
    write_spoiled,
)
from worker.gguf.policy import Policy
from worker.model.checks import model as checks
from worker.model.config import load_config

OTHERS: list[Row] = [
    ("n_tensors = 0", "VOCAB_ONLY", lambda g: setattr(g, "tensors", [])),
    ("imatrix", "IMATRIX", all_of(lambda g: g.drop("general.architecture"),
                                  keyed("general.type", text("imatrix")))),
    ("old imatrix", "IMATRIX", keyed("imatrix.chunk_count", u32(1))),
    ("LoRA adapter", "LORA_ADAPTER", keyed("general.type", text("adapter"))),
    ("LoRA adapter, old", "LORA_ADAPTER", keyed("adapter.type", text("lora"))),
    ("mmproj", "MMPROJ", keyed("general.architecture", text("clip"))),
    ("mmproj by type", "MMPROJ", keyed("general.type", text("mmproj"))),
    ("general.architecture missing", "MISSING_KEY", dropped("general.architecture")),
    ("architecture wrong type", "WRONG_TYPE", keyed("general.architecture", u32(1))),
    ("architecture unknown", "UNKNOWN_ARCHITECTURE", keyed("general.architecture", text("lama"))),
    ("architecture not [a-z0-9_-]", "UNKNOWN_ARCHITECTURE",
     keyed("general.architecture", text("Llama 2"))),
    ("architecture 10 KB", "UNKNOWN_ARCHITECTURE",
     keyed("general.architecture", text("x" * 10_240))),
    ("quantised tensors, no general.quantization_version", "NO_QUANTIZATION_VERSION",
     all_of(dropped("general.quantization_version"),
            tensor("output.weight", type=8, data=bytes(300 * 34)))),
]  # fmt: skip


@pytest.mark.parametrize(("code", "change"), rows(OTHERS))
def test_another_kind_of_file(code: str, change: Change, tmp_path: Path) -> None:
    """The file is refused with its own code, one sentence and the next step."""
    assert refused(write_spoiled(tmp_path, change)).code == code


POLICIES: list[tuple[str, Policy, str, Change]] = [
    ("version 2", Policy(allow_version_2=True), "spm", patched(4, struct.pack("<I", 2))),
    ("key upper-case", Policy(allow_odd_keys=True), "spm", keyed("Vendor..key", u32(0))),
    *((f"alignment {n}", Policy(allow_small_alignment=True), "spm",
       all_of(keyed("general.alignment", u32(n)), lambda g, n=n: setattr(g, "alignment", n)))
      for n in (1, 2, 4)),
    ("trailing bytes", Policy(allow_trailing_bytes=True), "spm",
     lambda g: g.encode() + bytes(100)),
    ("no quantization_version", Policy(allow_missing_quantization_version=True), "spm",
     all_of(dropped("general.quantization_version"),
            tensor("output.weight", type=8, data=bytes(300 * 34)))),
    ("merge without a space", Policy(allow_odd_merges=True), "bpe",
     listed(MERGES, lambda v: v.__setitem__(3, "ab"))),
    ("unknown merge part", Policy(allow_unknown_merge_parts=True), "bpe",
     listed(MERGES, lambda v: v.__setitem__(3, "e unknown"))),
    ("NUL in a token", Policy(allow_nul_in_tokens=True), "spm",
     listed(TOKENS, lambda v: v.__setitem__(299, "a\0b"))),
    ("byte token missing", Policy(allow_missing_byte_tokens=True), "spm",
     all_of(listed(TOKENS, lambda v: v.__setitem__(5, "five")),
            listed(KINDS, lambda v: v.__setitem__(5, 1)))),
    ("scores longer", Policy(allow_excess_scores=True), "spm",
     listed(SCORES, lambda v: v.append(0.0))),
    ("vocab_size ≠ tokens", Policy(allow_vocab_size_mismatch=True), "spm", both_sizes),
    ("layer beyond block_count", Policy(allow_layer_gaps=True), "spm",
     extra("blk.99.attn_norm.weight", (32,), data=bytes(128))),
    ("128 KiB alignment", Policy(max_alignment=1 << 17), "spm",
     all_of(keyed("general.alignment", u32(1 << 17)), lambda g: setattr(g, "alignment", 1 << 17))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "vocab", "change"), [pytest.param(*rest, id=row) for row, *rest in POLICIES]
)
def test_a_policy_lets_it_pass(policy: Policy, vocab: str, change: Change, tmp_path: Path) -> None:
    """What is refused by policy alone is refused by default and read when it is allowed."""
    path = write_spoiled(tmp_path, change, vocab=vocab)
    refused(path)
    assert load_config(path, policy=policy).layers == 2


def test_unknown_architecture_can_be_allowed(tmp_path: Path) -> None:
    """An architecture newer than our list is read when the policy says so."""
    path = small(architecture="llama9").write(tmp_path / "m.gguf")
    assert refused(path).code == "UNKNOWN_ARCHITECTURE"
    assert load_config(path, policy=Policy(allow_unknown_architecture=True)).layers == 2


@pytest.mark.parametrize("arch", ["bert", "t5", "eagle3"])
def test_models_that_cannot_generate(arch: str, tmp_path: Path) -> None:
    """Encoders, encoder-decoders and draft heads are refused for generating only."""
    path = small(architecture=arch).write(tmp_path / "m.gguf")
    codes = {"bert": "ENCODER_ONLY", "t5": "ENCODER_DECODER", "eagle3": "DRAFT_MODEL"}
    assert refused(path).code == codes[arch]
    assert load_config(path, purpose="inspect").architecture == arch


CODE = re.compile(r"\b[A-Z0-9]+(?:_[A-Z0-9]+)+\b")
QUOTED = re.compile(r'"([A-Z0-9]+(?:_[A-Z0-9]+)+)"')


def test_codes_are_documented() -> None:
    """Each code that checks/model.py lists is raised somewhere; `refused` checks the reverse."""
    folder = Path(checks.__file__).parents[2]
    listed = {word for line in (checks.__doc__ or "").splitlines() for word in CODE.findall(line)}
    used = {
        code
        for path in folder.rglob("*.py")
        for code in QUOTED.findall(path.read_text().replace(checks.__doc__ or "", ""))
    }
    assert listed
    assert listed <= used
