"""Prompts of known length that nobody has seen before."""

from __future__ import annotations

import random

from worker.bench.plan import GENERAL_TEXT

_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
# Ids of plain pieces of text in every vocabulary that we know; specials and bytes lie outside.
_IDS = range(600, 2000)


class Prompts:
    """Texts of random three-letter words, and token ids.

    In the vocabulary that `benchmarks.models` writes, a word is one token; where that has only
    32,000 tokens, one word in seven is two.

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

    def passage(self, num_words: int) -> list[str]:
        """So many words of a text that people wrote, from some place on."""
        words = GENERAL_TEXT.read_text().split()
        start = self._random.randrange(len(words) - num_words)
        return words[start : start + num_words]

    def tokens(self, count: int) -> list[int]:
        """The ids of `count` random tokens."""
        return self._random.choices(_IDS, k=count)
