"""The state of a sequence outside of the KV cache, as the backend gives it."""

from __future__ import annotations

from typing import Protocol

import numpy as np

# Tokens of a block. A block is what is kept, shared, evicted and written. 64 tokens of a 125M
# shape are 0.8 MB, of a Llama-1B shape 2.1 MB; joining them costs 30 µs a block.
BLOCK = 64

# Packed rows of consecutive blocks, from token 0 on, and how many first tokens of each count.
Parts = list[tuple[np.ndarray, int]]


# (after how many tokens, uint8 [n]); see `SlotState.rest`
RestAt = tuple[int, np.ndarray]


class SlotState(Protocol):
    """A copy of the state that a slot has after its first `num_tokens` tokens.

    rest  uint8 [n]: what belongs to all of these tokens together (recurrent layers, cells inside
          a sliding window); None where a model has nothing of this kind
    """

    num_tokens: int

    @property
    def rest(self) -> np.ndarray | None:
        """uint8 [n]"""
        ...

    def rows(self, begin: int, stop: int) -> np.ndarray:
        """What belongs to the tokens at positions begin to stop - 1 alone, packed; a copy.

        uint8 [(stop - begin) x bytes of a token]; empty where all layers are recurrent.
        """
        ...
