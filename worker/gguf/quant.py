"""Encodings of tensors: their sizes, their names, the name of a mix of them, and where numbers lie
in their blocks.

The sizes are those of ggml's type table. The tests compare them with `gguf.constants`; importing
`gguf` here would take longer than reading a file. A quantised weight is a small whole number times
the scales of its block, so a block is sound where its scales are. The layouts are those of
`ggml-common.h`, the factors follow from its `dequantize_row_*`; `ggml_validate_row_data` looks at
the same numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec


class Encoding(msgspec.Struct, frozen=True):
    """How ggml stores a tensor type: `block` elements in `nbytes` bytes."""

    name: str
    block: int
    nbytes: int

    @property
    def bits(self) -> float:
        """Bits per element."""
        return self.nbytes * 8 / self.block

    @property
    def quantized(self) -> bool:
        """Whether several elements share a block."""
        return self.block > 1


ENCODINGS: dict[int, Encoding] = {
    0: Encoding("F32", 1, 4),
    1: Encoding("F16", 1, 2),
    2: Encoding("Q4_0", 32, 18),
    3: Encoding("Q4_1", 32, 20),
    6: Encoding("Q5_0", 32, 22),
    7: Encoding("Q5_1", 32, 24),
    8: Encoding("Q8_0", 32, 34),
    9: Encoding("Q8_1", 32, 40),
    10: Encoding("Q2_K", 256, 84),
    11: Encoding("Q3_K", 256, 110),
    12: Encoding("Q4_K", 256, 144),
    13: Encoding("Q5_K", 256, 176),
    14: Encoding("Q6_K", 256, 210),
    15: Encoding("Q8_K", 256, 292),
    16: Encoding("IQ2_XXS", 256, 66),
    17: Encoding("IQ2_XS", 256, 74),
    18: Encoding("IQ3_XXS", 256, 98),
    19: Encoding("IQ1_S", 256, 50),
    20: Encoding("IQ4_NL", 32, 18),
    21: Encoding("IQ3_S", 256, 110),
    22: Encoding("IQ2_S", 256, 82),
    23: Encoding("IQ4_XS", 256, 136),
    24: Encoding("I8", 1, 1),
    25: Encoding("I16", 1, 2),
    26: Encoding("I32", 1, 4),
    27: Encoding("I64", 1, 8),
    28: Encoding("F64", 1, 8),
    29: Encoding("IQ1_M", 256, 56),
    30: Encoding("BF16", 1, 2),
    34: Encoding("TQ1_0", 256, 54),
    35: Encoding("TQ2_0", 256, 66),
    39: Encoding("MXFP4", 32, 17),
    40: Encoding("NVFP4", 64, 36),
    41: Encoding("Q1_0", 128, 18),
    42: Encoding("Q2_0", 64, 18),
}
REMOVED = {4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8",
           36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8"}  # fmt: skip
# Types for activations or for counting. No loader takes a weight in them.
NEVER_WEIGHTS = frozenset({"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"})

# general.file_type -> its label and the tensor type that gives it its name.
FILE_TYPES: dict[int, tuple[str, str]] = {
    0: ("F32", "F32"), 1: ("F16", "F16"), 2: ("Q4_0", "Q4_0"), 3: ("Q4_1", "Q4_1"),
    7: ("Q8_0", "Q8_0"), 8: ("Q5_0", "Q5_0"), 9: ("Q5_1", "Q5_1"), 10: ("Q2_K", "Q2_K"),
    11: ("Q3_K_S", "Q3_K"), 12: ("Q3_K_M", "Q3_K"), 13: ("Q3_K_L", "Q3_K"),
    14: ("Q4_K_S", "Q4_K"), 15: ("Q4_K_M", "Q4_K"), 16: ("Q5_K_S", "Q5_K"),
    17: ("Q5_K_M", "Q5_K"), 18: ("Q6_K", "Q6_K"), 19: ("IQ2_XXS", "IQ2_XXS"),
    20: ("IQ2_XS", "IQ2_XS"), 21: ("Q2_K_S", "Q2_K"), 22: ("IQ3_XS", "IQ3_S"),
    23: ("IQ3_XXS", "IQ3_XXS"), 24: ("IQ1_S", "IQ1_S"), 25: ("IQ4_NL", "IQ4_NL"),
    26: ("IQ3_S", "IQ3_S"), 27: ("IQ3_M", "IQ3_S"), 28: ("IQ2_S", "IQ2_XS"),
    29: ("IQ2_M", "IQ2_S"), 30: ("IQ4_XS", "IQ4_XS"), 31: ("IQ1_M", "IQ1_M"),
    32: ("BF16", "BF16"), 36: ("TQ1_0", "TQ1_0"), 37: ("TQ2_0", "TQ2_0"),
    38: ("MXFP4_MOE", "MXFP4"), 39: ("NVFP4", "NVFP4"), 40: ("Q1_0", "Q1_0"),
    41: ("Q2_0", "Q2_0"),
}  # fmt: skip
GUESSED = 1024  # llama.cpp's mark on a file type that it inferred

_LABELS = sorted({label for label, _ in FILE_TYPES.values()}
                 | {encoding.name for encoding in ENCODINGS.values()}
                 | {"Q2_K_L", "Q3_K_XL", "Q4_K_L", "Q4_K_XL", "Q5_K_L", "Q5_K_XL", "Q6_K_L",
                    "Q6_K_XL", "Q8_0_L", "Q8_K_XL", "Q2_K_XL", "IQ1_XXS"},
                 key=len, reverse=True)  # fmt: skip
_IN_NAME = re.compile(
    r"(?:^|[-._])(?P<mark>UD[-_])?(?P<label>" + "|".join(_LABELS) + r")(?=$|[-._])", re.IGNORECASE
)


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a model that is stored in one encoding."""

    tensors: int
    elements: int
    nbytes: int


def mix_of(tensors: Iterable[tuple[int, int, int]]) -> dict[str, Share]:
    """The mix by encoding name, largest part first, of (type, elements, bytes) per tensor."""
    totals: dict[str, list[int]] = {}
    for kind, elements, nbytes in tensors:
        total = totals.setdefault(ENCODINGS[kind].name, [0, 0, 0])
        total[0] += 1
        total[1] += elements
        total[2] += nbytes
    ranked = sorted(totals.items(), key=lambda item: -item[1][1])
    return {name: Share(tensors=t, elements=e, nbytes=b) for name, (t, e, b) in ranked}


def bits_per_weight(elements: int, nbytes: int) -> float:
    """Average bits per element; 0.0 where there are none."""
    return nbytes * 8 / elements if elements else 0.0


def label_in_name(name: str) -> str | None:
    """The encoding that a file name claims, as `Q4_K_M` or `UD-Q4_K_XL`; the last one counts.

    Most published names do not follow the official pattern, so only the label is looked for.
    """
    found = None
    for match in _IN_NAME.finditer(name):
        found = match
    if found is None:
        return None
    label = found["label"].upper()
    return f"UD-{label}" if found["mark"] else label


def label_of(file_type: int | None, mix: Mapping[str, Share], name: str) -> str:
    """One label for a file, from its metadata, else from its mix, else from its name.

    The metadata counts where the mix agrees: for `Q4_K_M` there must be tensors in Q4_K. Else the
    encoding of the most elements gives the label. A file name that agrees with it makes it more
    precise: `Q4_K` and `model-UD-Q4_K_XL.gguf` make `UD-Q4_K_XL`.
    """
    claimed = label_in_name(name)
    if file_type is not None and (entry := FILE_TYPES.get(file_type & ~GUESSED)):
        label, base = entry
        if not mix or base in mix:
            # Only the file's name tells `Q4_K_M` from `UD-Q4_K_XL`: the metadata is the same.
            finer = claimed is not None and claimed.removeprefix("UD-").startswith(base)
            return claimed if finer and claimed and claimed.startswith("UD-") else label
    if not mix:
        return claimed or "unknown"
    base = next(iter(mix))
    if claimed and claimed.removeprefix("UD-").startswith(base):
        return claimed
    return base


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
    "Q4_1": (0, 15, 1),
    "Q5_1": (0, 31, 1),
    "Q2_K": (80, 15 * 3, 15),
    "Q4_K": (0, 63 * 15, 63),
    "Q5_K": (0, 63 * 31, 63),
}

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
