"""What a sequence goes on from."""

from __future__ import annotations

import msgspec
import numpy as np


class Medium(msgspec.Struct, frozen=True, eq=False):
    """A picture or a sound in a prompt: vectors in the place of tokens.

    start      place of its first vector in the prompt
    vectors    float32 [rows, width], as the projector made them
    length     positions that it takes; other than its rows where the model has M-RoPE
    positions  int32 [4, rows], relative to its first one: of M-RoPE; None: one after the other
    is_causal  whether a row looks only at what stands before it; else all are computed in one step
    """

    start: int
    vectors: np.ndarray
    length: int
    positions: np.ndarray | None = None
    is_causal: bool = True

    @property
    def stop(self) -> int:
        """The place behind its last vector."""
        return self.start + len(self.vectors)

    def positions_from(self, first: int, begin: int, stop: int) -> np.ndarray:
        """Of its vectors begin to stop, places in the prompt; int32 [4, stop - begin] or
        [stop - begin]. first: the position of its first vector"""
        if self.positions is None:
            offset = first - self.start
            return np.arange(begin + offset, stop + offset, dtype=np.int32)
        return self.positions[:, begin - self.start : stop - self.start] + np.int32(first)


class Prompt(msgspec.Struct, frozen=True):
    """What the model reads before it writes; the copies of one prompt hold the same.

    tokens       ids, at least one, exactly as computed (BOS included where it is wanted); where a
                 medium stands, negative numbers made from the hash of its file, one a vector
    checkpoints  lengths of the prompt after which another prompt may go on differently: there the
                 state of a model is kept that cannot be cut later
    key          with what it is computed, such as a set of adapters; empty: the model alone. Only
                 rows of one key share a step
    begin        tokens before that, which the model computes alone
    media        what it holds beside tokens, in order
    """

    tokens: tuple[int, ...]
    checkpoints: tuple[int, ...] = ()
    key: bytes = b""
    begin: int = 0
    media: tuple[Medium, ...] = ()

    def key_after(self, length: int) -> bytes:
        """Of what the cache holds of its first `length` tokens."""
        if length <= self.begin or not self.key:
            return b""
        return self.key + self.begin.to_bytes(4) if self.begin else self.key

    def num_alike(self, other: Prompt, length: int) -> int:
        """How many of these first tokens, if they are the same, are computed in the same way."""
        if self.key_after(length) == other.key_after(length):
            return length
        return min(length, *(each.begin for each in (self, other) if each.key))

    def medium_at(self, place: int) -> Medium | None:
        """The medium whose vector stands there."""
        return next((each for each in self.media if each.start <= place < each.stop), None)

    def position(self, place: int) -> int:
        """The position of a token, or of a medium's first vector."""
        if not self.media:
            return place
        return place + sum(
            each.length - len(each.vectors) for each in self.media if each.stop <= place
        )

    def run(self, begin: int, count: int) -> int:
        """How many of the `count` places from `begin` on are tokens, or vectors of one medium."""
        for each in self.media:
            if begin < each.stop:
                return min(count, (each.start if begin < each.start else each.stop) - begin)
        return count

    def whole(self, length: int) -> int:
        """The most of these first tokens that end with no part of a medium."""
        for each in self.media:
            if each.start < length < each.stop:
                return each.start
        return length


NO_PROMPT = Prompt(())
