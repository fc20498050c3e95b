"""Which tokens may come next."""

from __future__ import annotations

import numpy as np


class TokenMask:
    """One bit for each token of a vocabulary.

    words            uint32 [(vocab_size + 31) // 32]; bits behind the last token are 0
    address, nbytes  of the words: behind a decode, which empties the CPU's caches, it takes 45 µs
                     to ask numpy for them
    """

    def __init__(self, vocab_size: int) -> None:
        self.words = np.zeros((vocab_size + 31) // 32, np.uint32)
        self.address, self.nbytes = self.words.ctypes.data, self.words.nbytes
