"""Where the scales of each encoding lie, beside llama.cpp's and gguf's own reading of them."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from numpy.typing import NDArray

from tests.support.cases import for_each
from tests.support.models.ggufs import QUANTIZED, TYPE_BY_NAME
from worker.audit.weights import odd_numbers
from worker.gguf.quant import ENCODINGS, MAX_WEIGHT, NEVER_WEIGHTS, fields_of
from worker.llama.library import ggml

PLAIN = ("F32", "F16", "BF16", "F64")
NUMBERS = tuple(name for name in (*PLAIN, *QUANTIZED) if fields_of(TYPE_BY_NAME[name])[1])
# gguf decodes neither of these yet.
DECODED = tuple(name for name in NUMBERS if name not in ("Q1_0", "Q2_0"))
COUNT = 64


def blocks_of(name: str, seed: int = 0) -> NDArray[np.uint8]:
    """COUNT blocks of random bytes, with small scales."""
    encoding, fields = fields_of(TYPE_BY_NAME[name])
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (COUNT, encoding.nbytes), np.uint8)
    small = rng.uniform(0.01, 0.1, (len(fields), COUNT))
    for field, values in zip(fields, small, strict=True):
        for row, value in enumerate(values):
            write(blocks, row, field.at, field.kind, float(value))
    return blocks


def bytes_of(kind: str, value: float) -> bytes:
    """A number as it is stored."""
    match kind:
        case "F16" | "nibbles":
            return np.float16(value).tobytes()
        case "BF16":
            return np.float32(value).tobytes()[2:]
        case "F32" | "F64":
            return np.dtype("<f4" if kind == "F32" else "<f8").type(value).tobytes()
        case _:
            return bytes([255 if np.isnan(value) else 127 + round(np.log2(value))])


def write(blocks: NDArray[np.uint8], row: int, at: int, kind: str, value: float) -> None:
    """Put a number into a block."""
    raw = np.frombuffer(bytes_of(kind, value), np.uint8)
    if kind != "nibbles":
        blocks[row, at : at + len(raw)] = raw
        return
    bits = int.from_bytes(raw.tobytes(), "little")
    for word in range(4):
        place = at + 2 * word + 1
        blocks[row, place] = blocks[row, place] & 0x0F | (bits >> 4 * word & 0xF) << 4


def native_says_good(name: str, blocks: NDArray[np.uint8]) -> bool:
    """llama.cpp's check of a tensor's bytes, that of its option `check_tensors`."""
    validate = ggml().ggml_validate_row_data
    validate.restype = ctypes.c_bool
    validate.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    data = blocks.tobytes()
    return validate(TYPE_BY_NAME[name], data, len(data))


def test_every_encoding_of_weights_is_known() -> None:
    """Only whole numbers, and scales of which every byte is finite, have nothing to look at."""
    silent = {each.name for number, each in ENCODINGS.items() if not fields_of(number)[1]}
    assert silent == NEVER_WEIGHTS - {"F64"} | {"NVFP4"}


@for_each("name", NUMBERS)
def test_sound_blocks_have_nothing_odd(name: str) -> None:
    """Any bytes around small scales are sound, for llama.cpp too."""
    blocks = blocks_of(name)
    assert native_says_good(name, blocks)
    for field in fields_of(TYPE_BY_NAME[name])[1]:
        assert odd_numbers(blocks, field) is None


@for_each("name", NUMBERS)
@for_each("value", [np.nan, np.inf, -np.inf])
def test_what_llama_cpp_refuses_is_found(name: str, value: float) -> None:
    """A scale that is no finite number is seen where it is, and counted."""
    for field in fields_of(TYPE_BY_NAME[name])[1]:
        if field.kind == "E8M0" and not np.isnan(value):
            continue  # it has no infinity
        blocks = blocks_of(name)
        write(blocks, 17, field.at, field.kind, value)
        write(blocks, 40, field.at, field.kind, value)
        assert not native_says_good(name, blocks)
        odd = odd_numbers(blocks, field)
        assert odd is not None
        assert (odd.nan, odd.infinite) == ((2, 0) if np.isnan(value) else (0, 2))
        assert odd.first == 17


# llama.cpp reads F64 as F32, where what is too large here is infinite.
@for_each("name", [name for name in NUMBERS if name != "F64"])
def test_random_bytes_are_judged_as_llama_cpp_does(name: str) -> None:
    """Of blocks of noise both find the same ones not finite."""
    encoding, fields = fields_of(TYPE_BY_NAME[name])
    rng = np.random.default_rng(1)
    good = 0
    for _ in range(300):
        block = rng.integers(0, 256, (1, encoding.nbytes), np.uint8)
        found = [odd_numbers(block, field) for field in fields]
        is_good = not any(odd.nan or odd.infinite for odd in found if odd is not None)
        assert is_good == native_says_good(name, block)
        good += is_good
    assert good


@for_each("name", [name for name in DECODED if name not in PLAIN])
def test_no_weight_is_larger_than_its_scales_allow(name: str) -> None:
    """The factors bound what gguf makes of the blocks, and are not much too large."""
    kind = GGMLQuantizationType[name]
    _, fields = fields_of(TYPE_BY_NAME[name])
    largest = 0.0
    for seed in range(20):
        blocks = blocks_of(name, seed)
        for field in fields:
            for row in range(COUNT):
                write(blocks, row, field.at, field.kind, 1.0)
        weights = quants.dequantize(blocks, kind)
        largest = max(largest, float(np.abs(weights).max()))
    bound = sum(field.factor for field in fields)
    assert largest <= bound
    assert largest >= bound / 4


@for_each("name", [name for name in NUMBERS if name != "F16"])
def test_weights_that_no_model_has_learnt(name: str) -> None:
    """A scale whose weights would not fit into F16 is counted, with the weight it stands for."""
    for field in fields_of(TYPE_BY_NAME[name])[1]:
        value = min(4 * MAX_WEIGHT / field.factor, 60000.0)
        if value * field.factor <= MAX_WEIGHT:
            continue  # no F16 scale is so large
        blocks = blocks_of(name)
        write(blocks, 5, field.at, field.kind, value)
        odd = odd_numbers(blocks, field)
        assert odd is not None
        assert (odd.nan, odd.infinite, odd.large, odd.first) == (0, 0, 1, 5)
        assert odd.largest == pytest.approx(value * field.factor, rel=0.5)
