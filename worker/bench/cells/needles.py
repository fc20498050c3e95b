"""A test whether a model still finds in a long text what stands there once.

Sentences with a name and a number are put into a text at different depths. Then each name is
asked for: the likeliest of all numbers that were put in must be its own. Chance finds one of
them in `NEEDLES`.
"""

from __future__ import annotations

import random

import msgspec
import numpy as np

from worker.bench.figures import Ids
from worker.bench.quality.windows import compute, gather, log_sums
from worker.llama.backend import LlamaBackend
from worker.llama.vocab import Vocab

NEEDLES = 4
_NAMES = ("Anna", "Karl", "Ruby", "Pia", "Ella", "Tom", "Ida", "Max")
_SEED = 5


class Haystack(msgspec.Struct, frozen=True):
    """tokens   the text with its needles
    asked    of each needle the tokens of the question
    endings  tokens of all answers; the one with the needle's place is right
    """

    tokens: Ids
    asked: list[list[int]]
    endings: list[list[int]]


def haystack(text: Ids, vocab: Vocab, number: int) -> Haystack:
    """A window of text with needles at even depths; windows differ by their number."""
    rng = random.Random(_SEED + number)  # noqa: S311  (no secrets)
    names = rng.sample(_NAMES, NEEDLES)
    numbers = [str(each) for each in rng.sample(range(100, 1000), NEEDLES)]

    def ids(words: str) -> list[int]:
        return vocab.tokenize(words, add_special=False, parse_special=False)

    parts: list[Ids] = []
    step = len(text) // NEEDLES
    for place, (name, value) in enumerate(zip(names, numbers, strict=True)):
        needle = ids(f"\nThe number of {name} is {value}.\n")
        parts += [text[place * step : (place + 1) * step], np.array(needle, np.int32)]
    return Haystack(
        tokens=np.concatenate(parts),
        asked=[ids(f"\nThe number of {name} is") for name in names],
        endings=[ids(f" {value}") for value in numbers],
    )


def needles_found(backend: LlamaBackend, hay: Haystack, step: int) -> list[bool] | None:
    """Of each needle whether it was found; None: the model's state cannot be cut back.

    step: tokens of a batch
    """
    backend.drop(0)
    for start in range(0, len(hay.tokens), step):
        compute(backend, hay.tokens[start : start + step], start, [])
    found: list[bool] = []
    for place, question in enumerate(hay.asked):
        scores: list[float] = []
        for ending in hay.endings:
            if not backend.drop(0, len(hay.tokens)):
                return None
            ids = np.array(question + ending, np.int32)
            wanted = range(len(question) - 1, len(ids) - 1)
            rows = compute(backend, ids[:-1], len(hay.tokens), wanted)
            scores.append(float(gather(rows, log_sums(rows), ids[len(question) :, None]).sum()))
        found.append(int(np.argmax(scores)) == place)
    return found
