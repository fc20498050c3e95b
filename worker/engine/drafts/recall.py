"""What this worker read and wrote lately, to guess what follows the same tokens again."""

from __future__ import annotations

import hashlib
import operator
from functools import lru_cache

import numpy as np

from worker.account import Account
from worker.engine.lookup import num_same

# So many tokens must be the same before what followed them is a guess.
RUN = 8
CAPACITY = 1 << 20  # tokens, of 4 bytes; the index is as large
# Two different runs share a place in the index about once in a thousand; then there is no guess.
_FACTORS = (
    0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1, 0xD3A2646D, 0xFD7046C5, 0xB55A4F09,
)  # fmt: skip
_MIX, _BITS, _SHIFT = 0x2C1B3C6D, 0xFFFFFFFF, 12  # the upper bits of a product are mixed best


@lru_cache(1024)
def _number(name: str) -> int:
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest) >> 1


def owner_of(account: Account) -> int:
    """A number of 31 bits for whose texts are whose; 0: keys without a name share theirs."""
    return _number(name) if (name := account.name or account.user) else 0


class Recall:
    """The newest tokens of all sequences in a ring, with an index of their runs of RUN tokens.

    What somebody's requests read and wrote is found for theirs only.

    ring     int32 [CAPACITY]; behind each text a negative number, ~ the number of whose it is
    written  how far the ring has moved on since the start
    """

    def __init__(self) -> None:
        self.ring = np.full(CAPACITY, -1, np.int32)
        self._index = np.zeros(CAPACITY, np.int32)  # hash of a run -> where it ends in the ring
        self._next = 1  # 0 in the index is: nothing
        self._full = 1  # where the ring began again
        self.written = 0

    def add(self, tokens: np.ndarray, whose: int = 0) -> None:
        """Remember a text, int32 [n]."""
        tokens = tokens[-(CAPACITY // 4) :]
        if len(tokens) <= RUN:
            return
        if self._next + len(tokens) + 1 > CAPACITY:
            self.written += CAPACITY - self._next + 1
            self._full, self._next = self._next, 1
        first, last = self._next, self._next + len(tokens)
        self.ring[first:last] = tokens
        self.ring[last] = ~whose
        self._next = last + 1
        self.written += len(tokens) + 1
        runs = np.lib.stride_tricks.sliding_window_view(tokens.view(np.uint32), RUN)
        mixed = (runs * np.array(_FACTORS, np.uint32)).sum(-1, dtype=np.uint32)
        places = (mixed + np.uint32(whose)) * np.uint32(_MIX) >> _SHIFT
        self._index[places] = np.arange(first + RUN, last + 1)

    def until(self, end: int) -> int:
        """With so much `written` another text may stand at this place."""
        return self.written + (end - self._next) % CAPACITY

    def texts(self) -> np.ndarray:
        """All that is remembered, the oldest first, each text with ~ whose it is behind it; int32
        [n]."""
        old, new = self.ring[self._next : self._full], self.ring[1 : self._next]
        whole = np.flatnonzero(old < 0)[:1] + 1  # the oldest may be overwritten in part
        return np.concatenate([old[int(whole[0]) :] if len(whole) else old[:0], new])

    def read(self, texts: np.ndarray) -> None:
        """Remember what `texts` gave, int32 [n]."""
        for text in np.split(texts, np.flatnonzero(texts < 0) + 1):
            if len(text) > RUN and text[-1] < 0:
                self.add(text[:-1], ~int(text[-1]))

    def find(self, tokens: np.ndarray, num_known: int, whose: int = 0) -> tuple[int, int]:
        """Where what may follow tokens[:num_known] stands in `ring`, and how many tokens before it
        are the same; (0, 0): nowhere in a text of theirs."""
        if num_known < RUN:
            return 0, 0
        newest: list[int] = tokens[num_known - RUN : num_known].tolist()
        mixed = sum(map(operator.mul, newest, _FACTORS), whose)
        ring, end = self.ring, int(self._index[(mixed * _MIX & _BITS) >> _SHIFT])
        if not end or ring[end] < 0 or ring[end - RUN : end].tolist() != newest:
            return 0, 0
        return end, num_same(ring, end, tokens, num_known)
