"""A native batch over the arrays of an engine's batch, and the logits of its rows."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from worker.engine.backend import Batch, BatchError
from worker.llama import library
from worker.llama.library import native


def wire(batch: Batch, fed: np.ndarray | None = None) -> native.llama_batch:
    """A native batch whose pointers lead into the numpy arrays of `batch`.

    fed: float32 [capacity, width], what goes into each row beside its token; or in its place, where
         the batch has vectors
    """
    count = batch.capacity
    # Each row belongs to one sequence, so pointer i leads to element i of `slots`.
    step = batch.slots.itemsize
    base = batch.slots.ctypes.data
    pointers = np.arange(base, base + count * step, step, dtype=np.uintp)
    ones = np.ones(count, np.int32)
    int32, int8 = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int8)
    positions = batch.positions if batch.planes is None else batch.planes
    wired = native.llama_batch(
        0,
        batch.tokens.ctypes.data_as(int32) if batch.vectors is None else None,
        None if fed is None else fed.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
        positions.ctypes.data_as(int32),
        ones.ctypes.data_as(int32),
        pointers.ctypes.data_as(ctypes.POINTER(int32)),
        batch.outputs.ctypes.data_as(int8),
    )
    wired.kept = (pointers, ones)  # pyright: ignore[reportAttributeAccessIssue]
    return wired


_address = library.with_address(native.llama_get_logits_ith)


class LogitRows:
    """Rows of one context's memory for logits.

    llama.cpp uses the same memory for each batch. So an array that was made once is of use again:
    to make one takes 20 µs after a decode has emptied the CPU's caches.
    """

    def __init__(self, context: Any, vocab_size: int) -> None:
        self._context = context
        self._row: Any = ctypes.c_float * vocab_size
        self._known: dict[int, np.ndarray] = {}  # by address

    def get(self, row: int) -> np.ndarray:
        """The logits of output row `row`, float32 [vocab_size]; valid until the next decode."""
        address = _address(self._context, row)
        if not address:
            raise BatchError(f"Row {row} has no logits.")
        known = self._known.get(address)
        if known is None:
            known = np.frombuffer(self._row.from_address(address), np.float32)
            self._known[address] = known
        return known
