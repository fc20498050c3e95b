"""The memory that samplers work in."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from worker.llama.library import native

# Layout of struct llama_token_data.
_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Workspace:
    """One for all samplers of one thread: what they leave in it is worth nothing.

    weights, plain, above   float32 [vocab_size]
    likelier, equal         bool [vocab_size]
    """

    def __init__(self, vocab_size: int) -> None:
        self.weights, self.plain, self.above = np.empty((3, vocab_size), np.float32)
        self.likelier, self.equal = np.empty((2, vocab_size), np.bool_)
        data = np.zeros(vocab_size, _TOKEN_DATA)
        self._ids, self._logits = data["id"], data["logit"]
        self._pointer = data.ctypes.data_as(ctypes.POINTER(native.llama_token_data))

    def candidates(self, logits: np.ndarray, ids: np.ndarray | None = None) -> Any:
        """Tokens as native samplers take them: `ids` with `logits`, or all tokens."""
        count = len(logits)
        self._ids[:count] = np.arange(count) if ids is None else ids
        self._logits[:count] = logits
        return native.llama_token_data_array(self._pointer, count, -1, False)

    def logits(self, count: int) -> np.ndarray:
        """The first candidates' logits as samplers left them, where they changed no order."""
        return self._logits[:count]
