"""Blocks of weights -> how many of their numbers are NaN, infinite or too large.

Only the bits are looked at. Without its sign a number of IEEE's kind that is larger has larger
bits, infinity has larger ones than all numbers, and NaN has larger ones still. So one maximum tells
whether a piece has anything to count.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.gguf.scales import MAX_WEIGHT, NumberField, Storage

_Bits = NDArray[np.unsignedinteger[Any]]


class _Form(NamedTuple):
    """How the bits are read; all of them but the sign's; those of infinity."""

    dtype: str
    magnitude: int
    infinity: int


_FORMS: dict[Storage, _Form] = {
    "F16": _Form("<u2", 0x7FFF, 0x7C00),
    "nibbles": _Form("<u2", 0x7FFF, 0x7C00),
    "BF16": _Form("<u2", 0x7FFF, 0x7F80),
    "F32": _Form("<u4", 0x7FFFFFFF, 0x7F800000),
    "F64": _Form("<u8", 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
    # Powers of two without a sign; its highest bits stand for NaN, and nothing for infinity.
    "E8M0": _Form("u1", 0xFF, 0xFF),
}


class OddNumber(NamedTuple):
    """Numbers of one piece that are no good. `first` is the block that has the first of them."""

    nan: int
    infinite: int
    large: int
    largest: float
    first: int


def odd_numbers(blocks: NDArray[np.uint8], field: NumberField) -> OddNumber | None:
    """What is wrong with `field` in blocks of shape (blocks, bytes of one); None: nothing."""
    form = _FORMS[field.kind]
    bits = _bits(blocks, field, form)
    limit = _limit(field, form)
    if int(bits.max(initial=0)) <= limit:
        return None
    odd = np.flatnonzero(bits > limit)
    found = bits[odd]
    finite = found[found < form.infinity]
    nan = int((found > form.infinity).sum())
    infinite = len(found) - nan - len(finite)
    if field.kind == "E8M0":
        nan, infinite = infinite, 0
    largest = _value(int(finite.max()), field.kind) * field.factor if len(finite) else 0.0
    return OddNumber(nan, infinite, len(finite), largest, int(odd[0]))


def _bits(blocks: NDArray[np.uint8], field: NumberField, form: _Form) -> _Bits:
    """The numbers' bits without their signs, one for each block."""
    if field.kind == "nibbles":
        words = blocks[:, field.at : field.at + 8].copy().view(np.uint16) >> np.uint16(12)
        shifts = np.array([0, 4, 8, 12], np.uint16)
        return np.bitwise_or.reduce(words << shifts, axis=1) & np.uint16(form.magnitude)
    if field.kind == "E8M0":
        return blocks[:, field.at]
    rows = np.ndarray((len(blocks),), form.dtype, blocks, field.at, (blocks.shape[1],))
    return rows & rows.dtype.type(form.magnitude)


def _limit(field: NumberField, form: _Form) -> int:
    """The largest bits that are good."""
    most = MAX_WEIGHT / field.factor
    match field.kind:
        case "F16" | "nibbles":
            return min(int(np.float16(most).view(np.uint16)), form.infinity - 1)
        case "BF16":
            return int(np.float32(most).view(np.uint32)) >> 16
        case "F32":
            return int(np.float32(most).view(np.uint32))
        case "F64":
            return int(np.float64(most).view(np.uint64))
        case "E8M0":
            return 127 + int(math.log2(most))


def _value(bits: int, kind: Storage) -> float:
    """The number that has these bits."""
    match kind:
        case "F16" | "nibbles":
            return float(np.uint16(bits).view(np.float16))
        case "BF16":
            return float(np.uint32(bits << 16).view(np.float32))
        case "F32":
            return float(np.uint32(bits).view(np.float32))
        case "F64":
            return float(np.uint64(bits).view(np.float64))
        case "E8M0":
            return 2.0 ** (bits - 127)
