"""The memory that samplers work in."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from worker.llama.guides.matcher import TokenMask
from worker.llama.library import native
from worker.llama.sampling.chain import Chain

# Layout of struct llama_token_data.
_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
# A byte of a mask -> what it adds to eight logits. So 151,936 logits are masked in 45 µs; to choose
# by a condition takes 100 to 450.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_ADDED = np.where(_BITS, np.float32(0), np.float32(-np.inf))
# Where fewer words of a mask than one of so many have a bit, their tokens are looked up.
_FEW = 16


class Workspace:
    """One for all samplers: what they leave in it is worth nothing.

    vocab_size              tokens
    weights, plain, above   float32 [vocab_size]
    likelier, equal         bool [vocab_size]
    mask                    which tokens a constraint allows
    chain                   holds memory for candidates; empty between two choices
    """

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.weights, self.plain, self.above = np.empty((3, vocab_size), np.float32)
        self.likelier, self.equal = np.empty((2, vocab_size), np.bool_)
        self.mask = TokenMask(vocab_size)
        self._added = np.empty((self.mask.nbytes, 8), np.float32)
        self._row = np.empty(vocab_size, np.float32)
        data = np.zeros(vocab_size, _TOKEN_DATA)
        self._ids, self._logits = data["id"], data["logit"]
        self.chain = Chain()
        self._pointer = data.ctypes.data_as(ctypes.POINTER(native.llama_token_data))

    def candidates(self, logits: np.ndarray, ids: np.ndarray | None = None) -> Any:
        """Tokens as native samplers take them: `ids` with `logits`, or all tokens.

        logits: float32 [n]
        """
        count = len(logits)
        self._ids[:count] = np.arange(count) if ids is None else ids
        self._logits[:count] = logits
        return native.llama_token_data_array(self._pointer, count, -1, False)

    def logits(self, count: int) -> np.ndarray:
        """The first candidates' logits as samplers left them, float32 [count]."""
        return self._logits[:count]

    def ids(self, count: int) -> np.ndarray:
        """The first candidates' ids as samplers left them, int32 [count]."""
        return self._ids[:count]

    def allowed_ids(self) -> np.ndarray | None:
        """Ids of the tokens that have a bit in `mask`, in their order; None: they are many.

        For a mask that allows few this takes a tenth of `mask_row` and of what reads its row.
        int64 [n]
        """
        words = self.mask.words.nonzero()[0]
        if len(words) * _FEW > len(self.mask.words):
            return None
        few = self.mask.words[words]
        at, bit = np.unpackbits(
            few.view(np.uint8).reshape(-1, 4), axis=1, bitorder="little"
        ).nonzero()
        return words[at] * 32 + bit

    def mask_row(self, row: np.ndarray) -> np.ndarray:
        """A copy of a row of logits, float32 [vocab_size]: -inf where `mask` has no bit."""
        np.take(_ADDED, self.mask.words.view(np.uint8), axis=0, out=self._added, mode="clip")
        return np.add(row, self._added.reshape(-1)[: len(row)], out=self._row)

    def copy_row(self, row: np.ndarray) -> np.ndarray:
        """float32 [vocab_size], valid until the next row is copied or masked."""
        np.copyto(self._row, row)
        return self._row
