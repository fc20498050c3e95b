"""Elements of vectors as Cohere's, Voyage's and Jina's clients ask for them."""

from __future__ import annotations

import base64
from collections.abc import Callable

import numpy as np

Elements = list[float | int] | str
_LARGEST = 127


def _scale(vector: np.ndarray) -> np.ndarray:
    """-127 to 127, of which the largest element has one."""
    largest = float(np.abs(vector).max(initial=0)) or 1.0
    return np.rint(vector / largest * _LARGEST).astype(np.int8)


def _bits(vector: np.ndarray) -> np.ndarray:
    """A bit for each element, 1 above 0, the first one the highest of its byte."""
    return np.packbits(vector > 0)


_MADE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "float": lambda vector: vector.astype("<f4"),
    "int8": _scale,
    "uint8": lambda vector: (_scale(vector).astype(np.int16) + _LARGEST + 1).astype(np.uint8),
    "binary": lambda vector: (_bits(vector).astype(np.int16) - _LARGEST - 1).astype(np.int8),
    "ubinary": _bits,
}


def encode(vector: np.ndarray, kind: str = "float", *, as_text: bool = False) -> Elements:
    """One vector. kind: a body's embedding_type; as_text: its bytes in base64"""
    made = _MADE[kind](vector)
    return base64.b64encode(made.tobytes()).decode() if as_text else made.tolist()
