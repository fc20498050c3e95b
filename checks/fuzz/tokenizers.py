"""Keys of one small vocabulary for each kind of tokenizer that llama.cpp has."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from tests.support.models.ggufs import (
    BOOL,
    F32,
    I32,
    STR,
    U8,
    Key,
    Raw,
    array,
    bpe_vocabulary,
    spm_vocabulary,
    text,
    u32,
)

Keys = dict[str | bytes, Key | Raw]
_SIZE = 320
_PREFIX = "tokenizer.ggml."
_WORDS = [a + b for a in "etaoinshrd" for b in "etaoinshrd"]


def _keys(values: Mapping[str, Key | Raw]) -> Keys:
    return {_PREFIX + name: value for name, value in values.items()}


def _bpe(model: str, pre: str, *more: str) -> Callable[[], Keys]:
    """A GPT-2 vocabulary under another name, its last tokens replaced by `more`."""

    def make() -> Keys:
        keys = bpe_vocabulary(_SIZE)
        tokens = keys[_PREFIX + "tokens"]
        assert isinstance(tokens, Key)
        kept = tokens.value[: _SIZE - 3 - len(more)]
        known = set(kept)
        merges = keys[_PREFIX + "merges"]
        assert isinstance(merges, Key)
        pairs = [pair for pair in merges.value if pair.replace(" ", "") in known]
        return keys | _keys(
            {
                "model": text(model),
                "pre": text(pre),
                "tokens": array(STR, [*kept, *more, *tokens.value[-3:]]),
                "merges": array(STR, pairs),
            }
        )

    return make


def _gemma4() -> Keys:
    """Byte-pair merges over SentencePiece's spelling."""
    keys = spm_vocabulary(_SIZE)
    keys.pop(_PREFIX + "pre")
    pairs = ["▁ e", "▁ t", "e t"]
    tokens = keys[_PREFIX + "tokens"]
    assert isinstance(tokens, Key)
    known = set(tokens.value)
    return keys | _keys(
        {
            "model": text("gemma4"),
            "merges": array(STR, [p for p in pairs if p.replace(" ", "") in known]),
        }
    )


def _bert() -> Keys:
    """WordPiece: the special tokens are where BERT has them."""
    tokens = [f"[unused{n}]" for n in range(100)]
    tokens[0] = "[PAD]"
    tokens += ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens += ["▁" + letter for letter in "abcdefghijklmnopqrstuvwxyz0123456789.,"]
    tokens += list("abcdefghijklmnopqrstuvwxyz") + ["▁" + word for word in _WORDS]
    return _keys(
        {
            "model": text("bert"),
            "tokens": array(STR, tokens),
            "token_type": array(I32, [1 if n > 103 else 3 for n in range(len(tokens))]),
            "token_type_count": u32(2),
            "bos_token_id": u32(101),
            "eos_token_id": u32(102),
            "unknown_token_id": u32(100),
            "seperator_token_id": u32(102),
            "padding_token_id": u32(0),
            "mask_token_id": u32(103),
        }
    )


def charsmap() -> bytes:
    """A table that writes `A` as `a`, as T5's files have one: an XOR-compressed double array.

    A node has the byte that leads to it in bits 0 to 7, whether it ends a text in bit 8, and from
    bit 10 on what its children's places are the XOR of. The root's children begin at 256.
    """
    nodes = [0] * 512
    nodes[0] = 256 << 10
    place = 256 ^ ord("A")
    nodes[place] = ord("A") | 1 << 8 | 1 << 10
    nodes[place ^ 1] = 0 | 1 << 31  # the replacement begins at byte 0
    return struct.pack("<I512I", 2048, *nodes) + b"a\0"


def _t5(*, mapped: bool) -> Callable[[], Keys]:
    """Unigrams with scores."""

    def make() -> Keys:
        tokens = ["<pad>", "</s>", "<unk>", "▁", *"abcdefghijklmnopqrstuvwxyz,.0123456789"]
        tokens += ["▁" + word for word in _WORDS] + _WORDS
        kinds = [3, 3, 2] + [1] * (len(tokens) - 3)
        keys = {
            "model": text("t5"),
            "tokens": array(STR, tokens),
            "scores": array(F32, [-float(n) for n in range(len(tokens))]),
            "token_type": array(I32, kinds),
            "eos_token_id": u32(1),
            "unknown_token_id": u32(2),
            "padding_token_id": u32(0),
            "add_space_prefix": Key(BOOL, 1),
            "remove_extra_whitespaces": Key(BOOL, 1),
        }
        if mapped:
            keys["precompiled_charsmap"] = array(U8, list(charsmap()))
        return _keys(keys)

    return make


def _rwkv() -> Keys:
    """Bytes and words, with escapes as in a Python literal."""
    tokens = ["<s>", *(f"\\x{byte:02x}" for byte in range(256)), *_WORDS]
    return _keys(
        {
            "model": text("rwkv"),
            "tokens": array(STR, tokens),
            "token_type": array(I32, [3] + [1] * (len(tokens) - 1)),
            "bos_token_id": u32(0),
            "eos_token_id": u32(0),
        }
    )


def _plamo2() -> Keys:
    tokens = ["<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>", "<|plamo:pad|>"]
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += [*"etaoinshrd ", *_WORDS, "雨"]
    kinds = [2, 3, 3, 3] + [6] * 256 + [1] * (len(tokens) - 260)
    return _keys(
        {
            "model": text("plamo2"),
            "tokens": array(STR, tokens),
            "scores": array(F32, [0.0 if kind != 1 else -1.0 for kind in kinds]),
            "token_type": array(I32, kinds),
            "bos_token_id": u32(1),
            "eos_token_id": u32(2),
            "unknown_token_id": u32(0),
            "padding_token_id": u32(3),
        }
    )


TOKENIZERS: dict[str, Callable[[], Keys]] = {
    "bert": _bert,
    "gemma4": _gemma4,
    "hybriddna": _bpe("hybriddna", "gpt-2", "<oov>", "AAAAAA\ue000", "CCCCCC\ue000", "<dna>",
                      "</dna>"),
    "whitespace": _bpe("whitespace", "whitespace"),
    "t5": _t5(mapped=False),
    "t5-charsmap": _t5(mapped=True),
    "rwkv": _rwkv,
    "plamo2": _plamo2,
    **{f"pre-{pre}": _bpe("gpt2", pre) for pre in (
        "llama-bpe", "qwen2", "gpt-4o", "deepseek-v3", "tekken", "kimi-k2", "chatglm-bpe",
        "jina-v2-code", "default", "bloom", "modern-bert", "superbpe")},
}  # fmt: skip
