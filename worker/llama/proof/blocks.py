"""Random weights in each encoding, and their values by numpy: no native code has a part in either.

Random bytes are valid blocks once their scales are numbers of the right size, so nothing that
quantises is needed.
"""

from __future__ import annotations

import math

import gguf
import numpy as np
from gguf import quants
from numpy.typing import NDArray

from worker.gguf.quant import ENCODINGS, FIELDS, NEVER_WEIGHTS, NumberField

BlockBytes = NDArray[np.uint8]
Rows32 = NDArray[np.float32]

# Package gguf cannot write it yet.
_NOT_WRITTEN = {"Q2_0"}
# The usual ones first: what a person runs is proven, or found wrong, soonest.
_FIRST = ("Q4_K", "Q6_K", "Q8_0", "Q4_0", "Q5_K", "F16", "BF16")
PROVEN: tuple[str, ...] = (
    *_FIRST,
    *(
        encoding.name
        for encoding in ENCODINGS.values()
        if encoding.name not in NEVER_WEIGHTS | _NOT_WRITTEN | set(_FIRST)
    ),
)
"""The encodings that weights are made in."""

_BY_NAME = {encoding.name: (number, encoding) for number, encoding in ENCODINGS.items()}
_E8M0_ONE, _NVFP4_SCALES, _NVFP4_MIDDLE = 127, 4, 56
# Scales differ from block to block, so that one that is taken for another's shows.
_LEAST_SCALE, _LARGEST_SCALE = 0.5, 1.5


def weights(
    name: str, rows: int, width: int, rms: float, random: np.random.Generator
) -> BlockBytes:
    """[rows, bytes of a row]: values with a mean of about 0 and about this root mean square."""
    encoding = _BY_NAME[name][1]
    if not encoding.quantized:
        return _plain(name, (random.standard_normal((rows, width)) * rms).astype(np.float32))
    count = rows * width // encoding.block
    blocks = random.integers(0, 256, (count, encoding.nbytes), np.uint8)
    if name == "NVFP4":
        _scale_nvfp4(blocks, rms, random)
    else:
        _scale(name, blocks, rms, random)
    return blocks.reshape(rows, -1)


def values(name: str, data: BlockBytes) -> Rows32:
    """float32 [rows, width] of what `weights` made."""
    number = _BY_NAME[name][0]
    if name == "Q1_0":  # a bit says whether a weight is the scale or its opposite
        blocks = data.reshape(-1, _BY_NAME[name][1].nbytes)
        signs = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").astype(np.float32) * 2 - 1
        return (blocks[:, :2].copy().view(np.float16) * signs).reshape(len(data), -1)
    return quants.dequantize(data, gguf.GGMLQuantizationType(number)).astype(np.float32)


def _plain(name: str, numbers: Rows32) -> BlockBytes:
    number = gguf.GGMLQuantizationType(_BY_NAME[name][0])
    return quants.quantize(numbers, number).view(np.uint8).reshape(len(numbers), -1)


def _scale(name: str, blocks: BlockBytes, rms: float, random: np.random.Generator) -> None:
    """Set the scales, and the minima so that the mean is about 0."""
    factors = random.uniform(_LEAST_SCALE, _LARGEST_SCALE, len(blocks)).astype(np.float32)
    scale, *minima = FIELDS[name]
    if scale.kind != "E8M0":
        factors *= random.choice((-1, 1), len(blocks))
    _set(blocks, scale, factors)
    ratio = np.float32(0)
    for minimum in minima:
        _set(blocks, minimum, factors * 0)
        alone = values(name, blocks).mean()
        _set(blocks, minimum, factors)
        ratio = -alone / (values(name, blocks).mean() - alone)
        _set(blocks, minimum, factors * ratio)
    factors *= rms / values(name, blocks).std()
    _set(blocks, scale, factors)
    for minimum in minima:
        _set(blocks, minimum, factors * ratio)


def _set(blocks: BlockBytes, field: NumberField, numbers: Rows32) -> None:
    """Write float32 [blocks] as the field of each block."""
    if field.kind == "E8M0":
        exponents = np.round(np.log2(numbers)).astype(np.int64) + _E8M0_ONE
        blocks[:, field.at] = exponents.clip(0, 254)
        return
    halves = numbers.astype(np.float16)
    if field.kind == "F16":
        blocks[:, field.at : field.at + 2] = halves.view(np.uint8).reshape(-1, 2)
        return
    bits = halves.view(np.uint16)
    for word in range(4):  # the highest nibble of each word is one of the scale's
        high = blocks[:, field.at + 2 * word + 1]
        high[:] = (high & 0x0F) | ((bits >> (4 * word)) & 0x0F).astype(np.uint8) << 4


def _scale_nvfp4(blocks: BlockBytes, rms: float, random: np.random.Generator) -> None:
    """Its scales are bytes: a step of 8 is twice the number."""
    steps = random.integers(0, 8, (len(blocks), _NVFP4_SCALES), np.uint8)
    blocks[:, :_NVFP4_SCALES] = _NVFP4_MIDDLE + steps
    doublings = round(math.log2(rms / float(values("NVFP4", blocks).std())))
    blocks[:, :_NVFP4_SCALES] = min(max(_NVFP4_MIDDLE + 8 * doublings, 0), 112) + steps
