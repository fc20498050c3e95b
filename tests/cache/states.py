"""States whose rows show which tokens they are of, for the tests of the cache."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from worker.cache.state import Parts

ROW_BYTES = 12

# What a sequence may end with: a few tokens of four, or one token many times.
endings = st.one_of(
    st.lists(st.integers(0, 3), max_size=6),
    st.tuples(st.integers(0, 3), st.integers(1, 150)).map(lambda t: [t[0]] * t[1]),
)


def ints(tokens: list[int]) -> np.ndarray:
    """The tokens as the engine passes them."""
    return np.array(tokens, np.int32)


def row(tokens: list[int], at: int) -> np.ndarray:
    """The row of the token at a position: its position, itself, and a hash of all before it."""
    return np.array([at, tokens[at], hash(tuple(tokens[: at + 1])) & 0x7FFFFFFF], "<i4").view("u1")


class FakeState:
    """A slot's state that is made of its tokens, and counts what was copied of it.

    rest_bytes: length of the rest; 0: there is none
    """

    def __init__(self, tokens: list[int], rest_bytes: int = 0) -> None:
        self.tokens = tokens
        self.num_tokens = len(tokens)
        self.rest = rest_of(tokens, rest_bytes) if rest_bytes else None
        self.copied: list[tuple[int, int]] = []

    def rows(self, begin: int, stop: int) -> np.ndarray:
        """Rows of the tokens at begin to stop - 1; uint8 [(stop - begin) x ROW_BYTES]."""
        self.copied.append((begin, stop))
        return np.concatenate([row(self.tokens, at) for at in range(begin, stop)])


def rest_of(tokens: list[int], nbytes: int) -> np.ndarray:
    """A rest that only exactly these tokens have; uint8 [nbytes]."""
    seed = hash(tuple(tokens)) & 0x7FFFFFFF
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def check_parts(parts: Parts, tokens: list[int]) -> None:
    """The parts are the rows of exactly these tokens."""
    at = 0
    for packed, count in parts:
        assert count > 0
        rows = packed.reshape(-1, ROW_BYTES)
        assert len(rows) >= count
        for i in range(count):
            assert np.array_equal(rows[i], row(tokens, at + i)), (at, i)
        at += count
    assert at == len(tokens)
