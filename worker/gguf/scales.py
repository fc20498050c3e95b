"""Where numbers lie in the blocks of each encoding: those that can be no finite number.

A quantised weight is a small whole number times the scales of its block, so a block is sound where
its scales are. The layouts are those of ggml's `ggml-common.h`, the factors follow from its
`dequantize_row_*`; `ggml_validate_row_data` looks at the same numbers.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from worker.gguf.quant import ENCODINGS, Encoding

Storage = Literal["F16", "BF16", "F32", "F64", "E8M0", "nibbles"]
"""How a number is stored. `nibbles`: an F16 whose four nibbles are the highest of four words."""

MAX_WEIGHT = 65504.0
"""The largest F16. A weight beyond it becomes infinite where a GPU multiplies in F16."""


class NumberField(NamedTuple):
    """A number that each block has: `name`, place in the block in bytes.

    factor: the most that it is multiplied by until it is a weight
    """

    name: str
    kind: Storage
    at: int
    factor: float


def _half(name: str, at: int, factor: float) -> NumberField:
    return NumberField(name, "F16", at, factor)


_PLAIN: tuple[Storage, ...] = ("F16", "BF16", "F32", "F64")
# One scale: its place, and sub-block scale times the largest whole number that it is multiplied by.
_SCALE_ONLY = {
    "Q1_0": (0, 1), "Q2_0": (0, 2), "Q4_0": (0, 8), "Q5_0": (0, 16), "Q8_0": (0, 128),
    "Q3_K": (108, 32 * 4), "Q6_K": (208, 128 * 32),
    "IQ1_S": (0, 15 * 1.125), "IQ2_XXS": (0, 15.5 / 4 * 43), "IQ2_XS": (0, 15.5 / 4 * 43),
    "IQ2_S": (0, 15.5 / 4 * 43), "IQ3_XXS": (0, 15.5 / 2 * 62), "IQ3_S": (0, 31 * 15),
    "IQ4_NL": (0, 127), "IQ4_XS": (0, 32 * 127), "TQ1_0": (52, 1), "TQ2_0": (64, 2),
}  # fmt: skip
# A scale and a minimum: the place of both, and the factor of each.
_SCALE_AND_MIN = {
    "Q4_1": (0, 15, 1), "Q5_1": (0, 31, 1),
    "Q2_K": (80, 15 * 3, 15), "Q4_K": (0, 63 * 15, 63), "Q5_K": (0, 63 * 31, 63),
}  # fmt: skip

FIELDS: dict[str, tuple[NumberField, ...]] = {
    **{kind: (NumberField("value", kind, 0, 1),) for kind in _PLAIN},
    **{name: (_half("scale", at, by),) for name, (at, by) in _SCALE_ONLY.items()},
    **{
        name: (_half("scale", at, by), _half("minimum", at + 2, by_min))
        for name, (at, by, by_min) in _SCALE_AND_MIN.items()
    },
    "MXFP4": (NumberField("scale", "E8M0", 0, 6),),
    "IQ1_M": (NumberField("scale", "nibbles", 48, 15 * 1.125),),
    # Every byte of NVFP4's scales is a finite number.
    "NVFP4": (),
}
"""Encoding -> its numbers. Whole numbers (I8 to I64) have none; Q8_1 and Q8_K are never weights."""


def fields_of(encoding: int) -> tuple[Encoding, tuple[NumberField, ...]]:
    """A tensor type's encoding and the numbers to look at."""
    found = ENCODINGS[encoding]
    return found, FIELDS.get(found.name, ())
