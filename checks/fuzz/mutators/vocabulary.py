"""Changes of the vocabulary: texts, scores, types, merges, special ids, templates' neighbours."""

from __future__ import annotations

from random import Random
from typing import Any

from checks.fuzz.mutators.header import Structure
from checks.fuzz.mutators.values import FLOATS, NUMBERS, any_key, element, near_list
from tests.support.models.ggufs import (
    ARR,
    BOOL,
    F32,
    I8,
    I32,
    STR,
    U8,
    U32,
    Gguf,
    Key,
    text,
)

PREFIX = "tokenizer.ggml."
_ARRAYS = ("tokens", "scores", "token_type", "merges")
_IDS = ("bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id", "unknown_token_id",
        "seperator_token_id", "padding_token_id", "cls_token_id", "mask_token_id",
        "prefix_token_id", "suffix_token_id", "middle_token_id", "fim_pre_token_id",
        "fim_suf_token_id", "fim_mid_token_id", "fim_pad_token_id", "fim_rep_token_id",
        "fim_sep_token_id")  # fmt: skip
_FLAGS = ("add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix",
          "remove_extra_whitespaces", "escape_whitespaces", "treat_whitespace_as_suffix",
          "normalizer.lowercase", "normalizer.strip_accents")  # fmt: skip
_MODELS = ("llama", "bert", "gpt2", "hybriddna", "whitespace", "gemma4", "t5", "rwkv", "plamo2",
           "test", "none", "no_vocab", "")  # fmt: skip
_PRES = ("default", "llama-bpe", "qwen2", "gpt-2", "gpt-4o", "tekken", "deepseek-v3", "kimi-k2",
         "whitespace", "gemma4", "chatglm-bpe", "glm4", "jina-v1-en", "bloom", "viking", "llama4",
         "superbpe", "bailingmoe", "seed-coder", "hunyuan", "trillion", "", "nope")  # fmt: skip
# Texts of tokens that mean something to llama.cpp, or to a parser of it.
_TEXTS = ("", " ", "\n", "\t", "\0", "</s>", "<s>", "<unk>", "<0x00>", "<0x0A>", "<0xFF>",
          "<0xZZ>", "<0x", "▁", "▁▁▁▁", "Ġ", "a b", "<|end|>", "<|im_end|>", "<|eot_id|>",
          "<|endoftext|>", "[EMPTY_3]", "<end_of_turn>", "<fim_prefix>", "<|tool_response>",
          "\\x00", "\\n", "\\xzz", "\\", "\\x", "\ue000", "<oov>", "<dna>", "[UNK]", "é", "🙂",
          "x" * 500, "\u0300", "\ufffd", "\ufeff", "\u2028", "{", "<think>", "雨")  # fmt: skip
_RAW = (b"\xff", b"\xc3", b"\xe2\x96", b"\xf0\x9f\x99", b"\x80", b"\xed\xa0\x80")


def _array(gguf: Gguf, name: str) -> Key | None:
    key = gguf.keys.get(PREFIX + name)
    return key if isinstance(key, Key) and key.type == ARR else None


def _any_array(gguf: Gguf, draw: Random) -> tuple[str, Key] | None:
    found = [(name, key) for name in _ARRAYS if (key := _array(gguf, name)) is not None]
    return draw.choice(found) if found else None


def array(gguf: Gguf, draw: Random) -> str:
    """One of the arrays with one thing changed."""
    chosen = _any_array(gguf, draw)
    if chosen is None:
        return "nothing"
    name, key = chosen
    assert key.item is not None
    gguf.keys[PREFIX + name] = Key(ARR, near_list(key.value, key.item, draw), key.item)
    return f"{name} changed"


def token(gguf: Gguf, draw: Random) -> str:
    """Some tokens with other texts."""
    key = _array(gguf, "tokens")
    if key is None or not key.value:
        return "nothing"
    values: list[Any] = list(key.value)
    said: list[str] = []
    for _ in range(draw.choice((1, 1, 2, 5))):
        place = draw.randrange(len(values))
        values[place] = draw.choice((draw.choice(_TEXTS), draw.choice(_RAW),
                                     draw.choice(values)))  # fmt: skip
        said.append(f"{place}: {values[place][:12]!r}")
    gguf.keys[PREFIX + "tokens"] = Key(ARR, values, STR)
    return f"tokens {said}"


def tokens(gguf: Gguf, draw: Random) -> str:
    """All tokens in another order, or many without a text of their own."""
    key = _array(gguf, "tokens")
    if key is None or not key.value:
        return "nothing"
    values: list[Any] = list(key.value)
    how = draw.choice(("shuffle", "reverse", "empty", "long", "same", "fewer", "one"))
    if how == "shuffle":
        draw.shuffle(values)
    elif how == "reverse":
        values.reverse()
    elif how == "empty":
        values = [""] * len(values)
    elif how == "long":
        values = [f"{n}" * 40 for n in range(len(values))]
    elif how == "same":
        values = [values[0]] * len(values)
    elif how == "fewer":
        values = values[: draw.randrange(1, len(values) + 1)]
    else:
        values = values[:1]
    gguf.keys[PREFIX + "tokens"] = Key(ARR, values, STR)
    return f"tokens: {how}"


def scores(gguf: Gguf, draw: Random) -> str:
    """Scores at the edge."""
    key = _array(gguf, "tokens")
    size = len(key.value) if key is not None else 300
    any_of = [draw.choice(FLOATS[:14]) for _ in range(size)]
    rising = [float(n) for n in range(size)]
    values = draw.choice((any_of, rising, [0.0] * size, [-3.4e38] * size, [3.4e38] * size))
    if draw.random() < 0.2 and values:
        values[draw.randrange(size)] = draw.choice(FLOATS)
    item = draw.choice((F32, F32, F32, I32))
    whole = [int(max(-(2**31), min(2**31 - 1, v))) if v == v else 0 for v in values]
    gguf.keys[PREFIX + "scores"] = Key(ARR, whole if item == I32 else values, item)
    return f"scores {values[:4]} as {item}"


def kinds(gguf: Gguf, draw: Random) -> str:
    """Types of tokens: bytes that are none, controls that are text."""
    key = _array(gguf, "token_type")
    size = len(key.value) if key is not None else 300
    values = list(key.value) if key is not None else [1] * size
    if draw.random() < 0.4:
        kind = draw.randrange(8)
        gguf.keys[PREFIX + "token_type"] = Key(ARR, [kind] * size, I32)
        return f"all tokens of type {kind}"
    for _ in range(draw.choice((1, 5, size))):
        if values:
            values[draw.randrange(len(values))] = draw.choice((0, 1, 2, 3, 4, 5, 6, 6, 7, -1))
    gguf.keys[PREFIX + "token_type"] = Key(ARR, values, I32)
    return "types of some tokens"


def merges(gguf: Gguf, draw: Random) -> str:
    """Merges that are damaged."""
    key = _array(gguf, "merges")
    values: list[Any] = list(key.value) if key is not None else ["a b"]
    for _ in range(draw.choice((1, 3))):
        new = draw.choice(("", " ", "a", "a b c", " a b", "a  b", "Ġ Ġ", "x" * 300 + " y", "a\0 b",
                           b"\xff \xff", draw.choice(values or ["a b"])))  # fmt: skip
        values.insert(draw.randrange(len(values) + 1), new)
    if draw.random() < 0.3:
        draw.shuffle(values)
    gguf.keys[PREFIX + "merges"] = Key(ARR, values, STR)
    return f"{len(values)} merges"


def special(gguf: Gguf, draw: Random) -> str:
    """Ids of special tokens: out of range, the same for all, of another type, or gone."""
    name, key = draw.choice(_IDS), _array(gguf, "tokens")
    size = len(key.value) if key is not None else 300
    if draw.random() < 0.2:
        gguf.keys.pop(PREFIX + name, None)
        return f"no {name}"
    value = draw.choice((0, 1, size - 1, size, size + 1, draw.randrange(max(1, size)), 2**31 - 1,
                         2**32 - 1, draw.choice(NUMBERS))) % 2**32  # fmt: skip
    kind = U32 if draw.random() < 0.9 else I32
    gguf.keys[PREFIX + name] = Key(kind, value % 2**31 if kind == I32 else value)
    return f"{name} = {value}"


def flag(gguf: Gguf, draw: Random) -> str:
    """Whether something is added or stripped."""
    name, value = draw.choice(_FLAGS), draw.randrange(2)
    gguf.keys[PREFIX + name] = Key(BOOL, value)
    return f"{name} = {value}"


def model(gguf: Gguf, draw: Random) -> str:
    """The tokens read by another tokenizer."""
    if draw.random() < 0.5:
        gguf.keys[PREFIX + "model"] = text(draw.choice(_MODELS))
        return f"model {gguf.keys[PREFIX + 'model']}"
    gguf.keys[PREFIX + "pre"] = text(draw.choice(_PRES))
    return f"pre {gguf.keys[PREFIX + 'pre']}"


def suppressed(gguf: Gguf, draw: Random) -> str:
    """Tokens that must not be sampled: all of them, or some that there are not."""
    key = _array(gguf, "tokens")
    size = len(key.value) if key is not None else 300
    ids = draw.choice((list(range(size)), [], [0], [size - 1], [size], [-1], [2**31 - 1],
                       list(range(1, size))))  # fmt: skip
    gguf.keys[PREFIX + "suppress_tokens"] = Key(ARR, ids, I32)
    return f"{len(ids)} tokens suppressed"


def charsmap(gguf: Gguf, draw: Random) -> str:
    """The table by which T5's tokenizer writes one text for another."""
    key = _array(gguf, "precompiled_charsmap")
    values = [int(v) % 256 for v in key.value] if key is not None else [0] * 64
    how = draw.choice(("bytes", "cut", "random", "words"))
    if how == "cut":
        values = values[: draw.randrange(len(values) + 1)]
    elif how == "random":
        values[4:] = [draw.randrange(256) for _ in values[4:]]
    elif how == "words":
        for _ in range(20):
            at = 4 + 4 * draw.randrange(max(1, len(values) // 4 - 1))
            word = draw.choice((0, 2**31, 2**32 - 1, draw.randrange(2**32), 256 << 10, 1 << 9))
            values[at : at + 4] = word.to_bytes(4, "little")
    else:
        for _ in range(draw.choice((1, 10, 100))):
            values[draw.randrange(len(values))] = draw.randrange(256)
    item = draw.choice((U8, U8, U8, I8))
    signed = [v - 256 if v > 127 else v for v in values] if item == I8 else values
    gguf.keys[PREFIX + "precompiled_charsmap"] = Key(ARR, signed, item)
    return f"charsmap: {how}"


def other_type(gguf: Gguf, draw: Random) -> str:
    """A key of the tokenizer with a value of any type."""
    name = draw.choice((*_ARRAYS, *_IDS, *_FLAGS, "model", "pre", "token_type_count",
                        "precompiled_charsmap", "suppress_tokens"))  # fmt: skip
    gguf.keys[PREFIX + name] = any_key(draw)
    return f"{name} = {str(gguf.keys[PREFIX + name])[:60]}"


def lengths(gguf: Gguf, draw: Random) -> str:
    """One of the arrays is shorter or longer than the others."""
    chosen = _any_array(gguf, draw)
    if chosen is None:
        return "nothing"
    name, key = chosen
    assert key.item is not None
    size = draw.choice((0, 1, len(key.value) - 1, len(key.value) + 1, len(key.value) * 2))
    values = [*key.value, *(element(key.item, draw) for _ in range(len(key.value) + 2))][:size]
    gguf.keys[PREFIX + name] = Key(ARR, values, key.item)
    return f"{size} {name}"


VOCABULARY: dict[str, Structure] = {
    "array": array, "token": token, "tokens": tokens, "scores": scores, "types": kinds,
    "merges": merges, "special": special, "added": flag, "tokenizer": model,
    "suppressed": suppressed, "charsmap": charsmap, "tokenizer-type": other_type,
    "lengths": lengths,
}  # fmt: skip
