"""What was made of constraints lately."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by their keys, of so many bytes together; the ones not asked for longest go first.

    Any thread may use it. What alone is larger is not kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.num_bytes = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value; None: it is not there."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def add(self, key: K, value: V, num_bytes: int) -> None:
        with self._lock:
            self.num_bytes += num_bytes - self._values.pop(key, (None, 0))[1]
            self._values[key] = value, num_bytes
            while self.num_bytes > self.most_bytes:
                self.num_bytes -= self._values.popitem(last=False)[1][1]


class KnownDigests:
    """Which digests came lately: of two that share a place the later one is known.

    All of it is made at once. Python's objects would be made one by one while a large constraint
    is at hand, and hold for hours the pages that it had. Any thread may use it.
    """

    def __init__(self, places: int = 4096) -> None:
        self._marks = array("Q", bytes(8 * places))

    def __contains__(self, digest: bytes) -> bool:
        mark = _mark(digest)
        return self._marks[mark % len(self._marks)] == mark

    def add(self, digest: bytes) -> None:
        """It came; at least 8 bytes that look random."""
        mark = _mark(digest)
        self._marks[mark % len(self._marks)] = mark


def _mark(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "little")
