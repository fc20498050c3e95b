"""Memory for copies of states, which may be large."""

from __future__ import annotations

import numpy as np

from worker import machine
from worker.memory.kept import MAX_COPY_BUFFER


def own_memory(count: int) -> np.ndarray:
    """`count` bytes. Raises MemoryError where the machine could not do without them.

    It does so for more than the memory plan counts for a copy. The system would give more than
    there is, and end the process once it is used.
    """
    if count > MAX_COPY_BUFFER and count > machine.memory().available // 2:
        raise MemoryError(f"{count} bytes")
    return np.empty(count, np.uint8)


class Scratch:
    """Memory that is used again, because fresh memory costs more than what is copied into it.

    Larger requests than MAX_COPY_BUFFER get memory of their own.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def take(self, count: int) -> np.ndarray:
        """`count` bytes, valid until the next call. Raises MemoryError as `own_memory` does."""
        if count > MAX_COPY_BUFFER:
            return own_memory(count)
        if count > len(self._memory):
            self._memory = np.empty(min(MAX_COPY_BUFFER, count + count // 2), np.uint8)
        return self._memory[:count]
