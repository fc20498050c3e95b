"""Values for keys: those at the edge of what is allowed, of any type."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.support.models.ggufs import (
    ARR,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STR,
    U8,
    U16,
    U32,
    U64,
    Key,
)

NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 128, 255, 256, 257, 299,
           300, 301, 319, 320, 321, 512, 513, 1000, 1024, 1025, 4096, 65_535, 65_536, 2**20, 2**24,
           2**30, 2**31 - 1, 2**31, 2**32 - 1)  # fmt: skip
FLOATS = (0.0, -0.0, 0.5, 1.0, -1.0, 1e-45, 1e-30, 1e-6, 2.0, 1e4, 1e6, 1e30, 3.4e38, -3.4e38,
          float("inf"), float("-inf"), float("nan"))  # fmt: skip
WORDS = ("", " ", "a", "llama", "gpt2", "t5", "bert", "rwkv", "plamo2", "gemma4", "none",
         "no_vocab", "test", "hybriddna", "whitespace", "default", "llama-bpe", "qwen2", "gpt-4o",
         "tekken", "kimi-k2", "yarn", "linear", "longrope", "foo", "é", "a\0b", "x" * 300,
         "qwen2vl", "gemma3", "mamba", "rwkv7", "deepseek2", "lfm2", "bge")  # fmt: skip
_BITS = {U8: 8, U16: 16, U32: 32, U64: 64, I8: 8, I16: 16, I32: 32, I64: 64}
_SIGNED = frozenset({I8, I16, I32, I64})


def whole(kind: int, value: int) -> int:
    """The value as a number of that type holds it."""
    bits = _BITS[kind]
    value %= 2**bits
    return value - 2**bits if kind in _SIGNED and value >= 2 ** (bits - 1) else value


def element(kind: int, draw: Random) -> Any:
    """One value of a type."""
    if kind == STR:
        return draw.choice(WORDS)
    if kind == BOOL:
        return draw.randrange(2)
    if kind in (F32, F64):
        return draw.choice(FLOATS)
    return whole(kind, draw.choice((*NUMBERS, -1, -2, -(2**31))))


def any_key(draw: Random) -> Key:
    """A value of any type, arrays among them."""
    kind = draw.choice((U32, U32, F32, STR, BOOL, ARR, ARR, U8, I8, U16, I16, I32, U64, I64, F64))
    if kind != ARR:
        return Key(kind, element(kind, draw))
    item = draw.choice((U32, I32, F32, STR, BOOL, U8, I8, U64, F64))
    length = draw.choice((0, 1, 2, 3, 4, 5, 8, 300, 320))
    return Key(ARR, [element(item, draw) for _ in range(length)], item)


def near(key: Key, draw: Random) -> Key:
    """Another value of the same type: a little more or less, or at the edge."""
    if key.type == ARR:
        assert key.item is not None
        return Key(ARR, near_list(key.value, key.item, draw), key.item)
    if key.type in _BITS:
        old = int(key.value)
        value = draw.choice((old - 1, old + 1, old * 2, old // 2, -old, draw.choice(NUMBERS)))
        return Key(key.type, whole(key.type, value))
    if key.type in (F32, F64):
        old_float = float(key.value)
        return Key(key.type, draw.choice((-old_float, old_float / 2, draw.choice(FLOATS))))
    return Key(key.type, element(key.type, draw))


def near_list(old: Sequence[Any], item: int, draw: Random) -> list[Any]:
    """An array with one thing changed: its length, or an element."""
    values = list(old)
    change = draw.choice(("set", "set", "set", "drop", "add", "swap", "half", "double", "empty"))
    if change == "add" or not values:
        values.insert(draw.randrange(len(values) + 1), element(item, draw))
    elif change == "set":
        values[draw.randrange(len(values))] = element(item, draw)
    elif change == "drop":
        del values[draw.randrange(len(values))]
    elif change == "swap":
        a, b = draw.randrange(len(values)), draw.randrange(len(values))
        values[a], values[b] = values[b], values[a]
    elif change == "half":
        values = values[: len(values) // 2]
    elif change == "double":
        values *= 2
    else:
        values = []
    return values
