"""Numbers as ggml's own functions store them in an encoding, and back."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.gguf.quant import ENCODINGS
from worker.llama import library, signatures

FloatRows = NDArray[np.float32]
_TO_FLOAT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
NUMBERS = {encoding.name: number for number, encoding in ENCODINGS.items()}
_F32, _F16 = NUMBERS["F32"], NUMBERS["F16"]


@functools.cache
def _lib() -> ctypes.CDLL:
    lib = library.ggml()
    signatures.declare(lib, signatures.ROUNDING)
    return lib


@functools.cache
def _to_float(number: int) -> Any:
    return _TO_FLOAT(_lib().ggml_get_type_traits(number).contents.to_float)


def decode(number: int, data: NDArray[np.uint8], columns: int) -> FloatRows:
    """FloatRows of a tensor type from their bytes, [rows, columns]."""
    if number == _F32:
        return data.view("<f4").reshape(-1, columns)
    encoding = ENCODINGS[number]
    rows = np.empty((data.nbytes // encoding.nbytes * encoding.block // columns, columns), "f4")
    _to_float(number)(data.ctypes.data, rows.ctypes.data, rows.size)
    return rows


def encode(number: int, rows: FloatRows, importance: FloatRows | None) -> NDArray[np.uint8]:
    """The bytes of rows, [rows, columns]; a row is whole blocks.

    importance: of the columns, as llama.cpp's quantizer gets it
    """
    if number == _F32:
        return rows.view(np.uint8).reshape(-1)
    if number == _F16:
        return rows.astype("<f2").view(np.uint8).reshape(-1)
    encoding = ENCODINGS[number]
    data = np.empty(rows.size // encoding.block * encoding.nbytes, np.uint8)
    weights = None if importance is None else importance.ctypes.data
    _lib().ggml_quantize_chunk(number, rows.ctypes.data, data.ctypes.data, 0, *rows.shape, weights)
    return data


def round_rows(number: int, rows: FloatRows, importance: FloatRows | None) -> FloatRows:
    """What becomes of the rows in that tensor type."""
    return decode(number, encode(number, rows, importance), rows.shape[1])
