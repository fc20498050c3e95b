"""Prompts of known length that nobody has seen before."""

from __future__ import annotations

import random

_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


class Prompts:
    """Texts of random three-letter words, a token each in the vocabulary of `benchmarks.models`.

    Two texts of one run begin with different words, so that no cache of prompts helps where
    nothing is to be shared. The same case and numbers give every peer the same texts.
    """

    def __init__(self, case: str, *numbers: int) -> None:
        """numbers: those of the round and the attempt."""
        self._random = random.Random(f"{case} {numbers}")

    def text(self, num_words: int) -> str:
        """A new text of `num_words` words."""
        words = ("".join(self._random.choices(_LETTERS, k=3)) for _ in range(num_words))
        return " ".join(words)
