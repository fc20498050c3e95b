"""What a sequence goes on from."""

from __future__ import annotations

import msgspec


class Prompt(msgspec.Struct, frozen=True):
    """What the model reads before it writes; the copies of one prompt hold the same.

    tokens       ids, at least one, exactly as computed (BOS included where it is wanted)
    checkpoints  lengths of the prompt after which another prompt may go on differently: there the
                 state of a model is kept that cannot be cut later
    key          with what it is computed, such as a set of adapters; empty: the model alone. Only
                 rows of one key share a step
    begin        tokens before that, which the model computes alone
    """

    tokens: tuple[int, ...]
    checkpoints: tuple[int, ...] = ()
    key: bytes = b""
    begin: int = 0

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


NO_PROMPT = Prompt(())
