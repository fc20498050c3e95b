"""Where llama.cpp has put the logits of a batch's rows."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from worker.engine.backend import BatchError
from worker.llama import library
from worker.llama.library import native

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
