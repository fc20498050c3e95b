"""The rows of one step: numpy arrays whose memory the backend hands to llama.cpp as it is."""

from __future__ import annotations

import numpy as np


class Batch:
    """Up to `capacity` rows, one token each; only the first `size` rows count.

    Arrays, all of shape [capacity]:
        tokens     int32  token id
        positions  int32  place in its sequence, from 0
        slots      int32  the KV cache's sequence id
        outputs    int8   1 where the row's logits are wanted

    Filling llama.cpp's own struct field by field costs 252 µs for 512 rows, slices 1.4 µs.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self.tokens = np.zeros(capacity, np.int32)
        self.positions = np.zeros(capacity, np.int32)
        self.slots = np.zeros(capacity, np.int32)
        self.outputs = np.zeros(capacity, np.int8)

    def clear(self) -> None:
        """Forget all rows."""
        self.size = 0

    def add(self, tokens: np.ndarray, start: int, slot: int) -> int:
        """Append a run of tokens at positions from `start`; returns the run's first row.

        No row is an output until `outputs` says so.
        """
        first, last = self.size, self.size + len(tokens)
        self.tokens[first:last] = tokens
        self.positions[first:last] = np.arange(start, start + len(tokens))
        self.slots[first:last] = slot
        self.outputs[first:last] = 0
        self.size = last
        return first

    def add_one(self, token: int, position: int, slot: int) -> int:
        """Append one token whose logits are wanted; returns its row."""
        row = self.size
        self.tokens[row] = token
        self.positions[row] = position
        self.slots[row] = slot
        self.outputs[row] = 1
        self.size = row + 1
        return row
