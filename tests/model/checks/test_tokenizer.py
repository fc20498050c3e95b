"""Tokenizers that native code would refuse, or fail on later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cases import for_each
from tests.support.models.ggufs import (
    BOOL,
    I8,
    I32,
    STR,
    U8,
    Key,
    array,
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
    dropped,
    keyed,
    listed,
    refused,
    rows,
    write_spoiled,
)

TOKENIZER: list[Row] = [
    ("tokenizer model missing", "MISSING_KEY", dropped("tokenizer.ggml.model")),
    ("tokenizer model unknown", "UNKNOWN_TOKENIZER", keyed("tokenizer.ggml.model", text("new"))),
    ("no tokenizer at all", "NO_TOKENIZER", keyed("tokenizer.ggml.model", text("no_vocab"))),
    ("tokens missing", "MISSING_KEY", dropped(TOKENS)),
    ("tokens empty", "BAD_TOKENS", keyed(TOKENS, array(STR, []))),
    ("tokens not a string array", "WRONG_TYPE", keyed(TOKENS, array(I32, [1] * 300))),
    ("scores shorter than tokens", "BAD_SCORES", listed(SCORES, lambda v: v[:-1])),
    ("scores longer than tokens", "BAD_SCORES", listed(SCORES, lambda v: v.append(0.0))),
    ("token_type shorter", "BAD_TOKEN_TYPES", listed(KINDS, lambda v: v[:-1])),
    ("token_type longer", "BAD_TOKEN_TYPES", listed(KINDS, lambda v: v.append(1))),
    ("scores declared INT8", "WRONG_TYPE", keyed(SCORES, array(I8, [0] * 300))),
    ("scores declared UINT8", "WRONG_TYPE", keyed(SCORES, array(U8, [0] * 300))),
    ("suppress_tokens UINT8", "WRONG_TYPE",
     keyed("tokenizer.ggml.suppress_tokens", array(U8, [1]))),
    *((f"suppress_tokens id {n}", "BAD_TOKENS",
       keyed("tokenizer.ggml.suppress_tokens", array(I32, [n]))) for n in (-1, 300)),
    ("duplicate token string", "DUPLICATE_TOKEN",
     listed(TOKENS, lambda v: v.__setitem__(299, v[298]))),
    ("an empty token and the name llama.cpp gives it", "DUPLICATE_TOKEN",
     listed(TOKENS, lambda v: [*v[:298], "", "[EMPTY_298]"])),
    ("token text above 64 KiB", "TOKEN_TOO_LONG",
     listed(TOKENS, lambda v: v.__setitem__(299, "x" * 65_537))),
    ("token text with NUL", "BAD_TOKENS", listed(TOKENS, lambda v: v.__setitem__(299, "a\0b"))),
    ("BOS id of a wrong type", "WRONG_TYPE", keyed("tokenizer.ggml.bos_token_id", Key(I32, 1))),
    ("add_bos of a wrong type", "WRONG_TYPE", keyed("tokenizer.ggml.add_bos_token", u32(1))),
    ("add_bos true and no BOS id (t5)", "NO_BOS",
     all_of(keyed("tokenizer.ggml.model", text("t5")), dropped("tokenizer.ggml.bos_token_id"))),
    ("add_eos true and no EOS id", "NO_BOS",
     all_of(keyed("tokenizer.ggml.model", text("rwkv")), dropped("tokenizer.ggml.eos_token_id"),
            keyed("tokenizer.ggml.add_eos_token", Key(BOOL, 1)))),
    ("precompiled_charsmap 3 bytes", "BAD_CHARSMAP",
     all_of(keyed("tokenizer.ggml.model", text("t5")),
            keyed("tokenizer.ggml.precompiled_charsmap", array(U8, [1, 2, 3])))),
    ("charsmap blob size ≥ array length", "BAD_CHARSMAP",
     all_of(keyed("tokenizer.ggml.model", text("t5")),
            keyed("tokenizer.ggml.precompiled_charsmap", array(U8, [5, 0, 0, 0, 1, 2, 3, 4])))),
    *((f"BYTE token {name}", "BAD_BYTE_TOKEN",
       listed(TOKENS, lambda v, name=name: v.__setitem__(5, name)))
      for name in ("<0x-1>", "<0xZZ>")),
    ("WordPiece with bytes", "BAD_BYTE_TOKEN", keyed("tokenizer.ggml.model", text("bert"))),
    ("a byte without a token", "BAD_BYTE_TOKEN",
     all_of(listed(TOKENS, lambda v: v.__setitem__(5, "five")),
            listed(KINDS, lambda v: v.__setitem__(5, 1)))),
    ("rwkv vocab without newline", "BAD_BYTE_TOKEN",
     keyed("tokenizer.ggml.model", text("rwkv"))),
    *((f"token_type value {n}", "BAD_TOKEN_TYPES",
       listed(KINDS, lambda v, n=n: v.__setitem__(299, n))) for n in (-1, 7, -(2**31))),
    *((f"scores {n}", "BAD_SCORES", listed(SCORES, lambda v, n=n: v.__setitem__(299, n)))
      for n in (float("nan"), float("inf"))),
    ("template above 256 KiB", "TEMPLATE_TOO_LONG",
     keyed("tokenizer.chat_template", text("x" * 262_145))),
    ("template of a wrong type", "WRONG_TYPE", keyed("tokenizer.chat_template", u32(1))),
    ("named template of a wrong type", "WRONG_TYPE",
     keyed("tokenizer.chat_template.tool_use", u32(1))),
]  # fmt: skip


BPE: list[Row] = [
    ("merges missing for gpt2", "MISSING_KEY", dropped(MERGES)),
    ("merges of a wrong type", "WRONG_TYPE", keyed(MERGES, array(I32, [1]))),
    ("merge without a space", "BAD_MERGES", listed(MERGES, lambda v: v.__setitem__(3, "ab"))),
    ("merge with only a leading space", "BAD_MERGES",
     listed(MERGES, lambda v: v.__setitem__(3, " ab"))),
    ("merge with an unknown part", "BAD_MERGES",
     listed(MERGES, lambda v: v.__setitem__(3, "e unknown"))),
    ("tokenizer.ggml.pre unknown", "UNKNOWN_PRE_TOKENIZER",
     keyed("tokenizer.ggml.pre", text("nope"))),
    ("tokenizer.ggml.pre of another tokenizer", "UNKNOWN_PRE_TOKENIZER",
     keyed("tokenizer.ggml.pre", text("whitespace"))),
]  # fmt: skip


@for_each(("code", "change"), rows(TOKENIZER))
def test_a_broken_tokenizer(code: str, change: Change, tmp_path: Path) -> None:
    """The file is refused with its own code, one sentence and the next step."""
    assert refused(write_spoiled(tmp_path, change)).code == code


@pytest.mark.parametrize(("code", "change"), rows(BPE))
def test_broken_merges(code: str, change: Change, tmp_path: Path) -> None:
    """The file is refused with its own code, one sentence and the next step."""
    assert refused(write_spoiled(tmp_path, change, vocab="bpe")).code == code
