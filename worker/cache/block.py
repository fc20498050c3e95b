"""The items of the tree of prefixes: blocks with their rows, and rests."""

from __future__ import annotations

import hashlib
from bisect import bisect_left

import numpy as np

from worker.cache.state import BLOCK

WIDTH = 4  # bytes of a token
BLOCK_BYTES = BLOCK * WIDTH
# Bytes that an item costs besides its rows: its objects and its places in the books. A block of a
# long prompt costs 1,043, a rest with a block of its own 513 each (measured with tracemalloc).
OVERHEAD = 1088
CHAIN_BYTES = 16


def token_bytes(tokens: np.ndarray) -> bytes:
    """The tokens as little-endian int32: what blocks are looked up by."""
    return np.ascontiguousarray(tokens, "<i4").tobytes()


def chain_hash(chain: bytes, tokens: bytes) -> bytes:
    """The hash of a prefix that is `tokens` longer than the one whose hash is `chain`."""
    return hashlib.blake2b(chain + tokens, digest_size=CHAIN_BYTES).digest()


def num_common(one: bytes, other: bytes) -> int:
    """How many first tokens are the same in both."""
    count = min(len(one), len(other)) // WIDTH
    differs = np.frombuffer(one, "<i4", count) != np.frombuffer(other, "<i4", count)
    return int(differs.argmax()) if differs.any() else count


class CachedBlock:
    """Rows of up to 64 tokens that follow the blocks above.

    tokens    their bytes; fewer than 64 tokens only in a block that has no children
    rows      uint8 [tokens x bytes of a token], in memory of its own
    children  the blocks that follow, by their tokens; `order` holds the same keys, sorted
    rests     states after some tokens of the next block, by these tokens (1 to 64 of them); a
              child that begins with these tokens holds their rows
    chain     hash of all tokens up to the end of this block
    depth     how many blocks lead here, this one included; 0: the root
    """

    __slots__ = tuple(
        "__weakref__ chain children depth nbytes order parent rests rows stamp tokens".split()
    )

    def __init__(
        self, tokens: bytes, rows: np.ndarray, parent: CachedBlock | None, chain: bytes
    ) -> None:
        """rows: uint8 [n]"""
        self.tokens = tokens
        self.rows = rows
        self.parent = parent
        self.chain = chain
        self.depth = parent.depth + 1 if parent is not None else 0
        self.children: dict[bytes, CachedBlock] = {}
        self.order: list[bytes] = []
        self.rests: dict[bytes, CachedRest] = {}
        self.nbytes = rows.nbytes + OVERHEAD
        self.stamp = 0

    @property
    def num_tokens(self) -> int:
        """How many tokens this block holds the rows of."""
        return len(self.tokens) // WIDTH

    def nearest(self, tokens: bytes) -> tuple[CachedBlock | None, int]:
        """The child that has the most first tokens in common with `tokens`, and how many."""
        # Of sorted texts, the one with the longest common beginning stands next to the place
        # where the text itself would stand.
        place = bisect_left(self.order, tokens)
        best: CachedBlock | None = None
        most = 0
        for key in self.order[max(place - 1, 0) : place + 1]:
            common = num_common(key, tokens)
            if common > most:
                best, most = self.children[key], common
        return best, most

    def children_from(self, tokens: bytes) -> list[CachedBlock]:
        """The children whose tokens begin with `tokens`."""
        place = bisect_left(self.order, tokens)
        found: list[CachedBlock] = []
        for key in self.order[place:]:
            if not key.startswith(tokens):
                break
            found.append(self.children[key])
        return found

    def deepest_rest(self, tokens: bytes) -> CachedRest | None:
        """The rest after the most tokens of those that `tokens` begins with."""
        found = [key for key in self.rests if tokens.startswith(key)]
        return self.rests[max(found, key=len)] if found else None


class CachedRest:
    """What belongs to all tokens of a prefix together; the prefix ends within a block.

    before  the last block that lies in the prefix as a whole, or the root
    tokens  the tokens of the prefix after that block: 1 to 64
    data    uint8 [n]
    """

    __slots__ = ("before", "data", "nbytes", "stamp", "tokens")

    def __init__(self, tokens: bytes, data: np.ndarray, before: CachedBlock) -> None:
        """data: uint8 [n]"""
        self.tokens = tokens
        self.data = data
        self.before = before
        self.nbytes = data.nbytes + OVERHEAD
        self.stamp = 0


Item = CachedBlock | CachedRest
