"""A native batch over the arrays of an engine's batch."""

from __future__ import annotations

import ctypes

import numpy as np

from worker.engine.backend import Batch
from worker.llama.library import native


def wire(batch: Batch, fed: np.ndarray | None = None) -> native.llama_batch:
    """A native batch whose pointers lead into the numpy arrays of `batch`.

    fed: float32 [capacity, width], what goes into each row beside its token
    """
    count = batch.capacity
    # Each row belongs to one sequence, so pointer i leads to element i of `slots`.
    step = batch.slots.itemsize
    base = batch.slots.ctypes.data
    pointers = np.arange(base, base + count * step, step, dtype=np.uintp)
    ones = np.ones(count, np.int32)
    int32, int8 = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int8)
    wired = native.llama_batch(
        0,
        batch.tokens.ctypes.data_as(int32),
        None if fed is None else fed.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
        batch.positions.ctypes.data_as(int32),
        ones.ctypes.data_as(int32),
        pointers.ctypes.data_as(ctypes.POINTER(int32)),
        batch.outputs.ctypes.data_as(int8),
    )
    wired.kept = (pointers, ones)  # pyright: ignore[reportAttributeAccessIssue]
    return wired
