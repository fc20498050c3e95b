"""Rows of logits of many shapes, what samplers may choose from them, and whether counts fit."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from tests.support.models import reference
from worker.llama.sampling.choice import ChainChoice, Peak, TokenChoice
from worker.llama.sampling.draw import Draw
from worker.llama.sampling.sampler import Sampler

#: No multiple of what the code reckons in blocks, less than a block, and a power of two.
SIZES = (1, 3, 320, 1025, 5003, 8192)


def rows(size: int) -> dict[str, np.ndarray]:
    """Name -> float32 [size], the same each time."""
    rng = np.random.default_rng(size)
    holes = rng.normal(0, 2, size).astype(np.float32)
    holes[rng.random(size) < 0.7] = -np.inf
    holes[rng.integers(size)] = 1
    made = {
        "random": rng.normal(0, 2, size),
        "flat": rng.normal(0, 0.01, size),
        "peaked": rng.normal(0, 8, size),
        "far": rng.normal(-1000, 20, size),
        "tied": rng.integers(-3, 3, size),
        "equal": np.zeros(size),
        "holes": holes,
        "one": np.where(np.arange(size) == size // 2, 3.0, -np.inf),
    }
    return {name: row.astype(np.float32) for name, row in made.items()}


ROWS = [
    pytest.param(row, id=f"{name}-{size}") for size in SIZES for name, row in rows(size).items()
]


def fits(tokens: Sequence[int], right: np.ndarray, bins: int = 16) -> bool:
    """Whether tokens were drawn with these probabilities: chi-square, p > 0.001."""
    # Bins of about equal probability; a token likelier than a bin leaves the next ones empty.
    order = np.argsort(right)
    bin_of = np.empty(len(right), int)
    bin_of[order] = np.minimum((np.cumsum(right[order]) * bins).astype(int), bins - 1)
    want = len(tokens) * np.bincount(bin_of, weights=right)
    got = np.bincount(bin_of[list(tokens)], minlength=len(want))
    used = want > 0
    assert want[used].min() > 5
    # The 0.999 quantile of chi-square, Wilson and Hilferty's approximation.
    freedom = 2 / (9 * (used.sum() - 1))
    limit = (used.sum() - 1) * (1 - freedom + 3.09 * math.sqrt(freedom)) ** 3
    return bool(((got - want)[used] ** 2 / want[used]).sum() < limit)


def chances(chooser: Sampler | TokenChoice, row: np.ndarray) -> dict[int, float]:
    """Token id -> probability to be chosen next, without a constraint; `row` stays as it is."""
    if isinstance(chooser, Sampler):
        row = row.copy()
        if chooser._edits is not None:
            chooser._edits.apply(row)
        return chances(chooser._choice, row)
    if isinstance(chooser, Draw):
        weights = chooser._weigh(row, row.max())
        kept = {
            token: float(weights[token])
            for token in map(int, np.flatnonzero(weights))
            if chooser._top_p >= 1 or chooser._admits(chooser._likelier(row, token))
        }
        total = sum(kept.values())
        return {token: weight / total for token, weight in kept.items()}
    if isinstance(chooser, ChainChoice):
        array = chooser._judge(row)
        logits = np.full(len(row), -np.inf, np.float32)
        for item in array.data[: array.size]:
            logits[item.id] = item.logit
        right = reference.probabilities(logits)
        return {int(token): float(right[token]) for token in np.flatnonzero(right)}
    assert isinstance(chooser, Peak)
    return {chooser.choose(row): 1.0}


def dense(probabilities: Mapping[int, float], size: int) -> np.ndarray:
    """Token id -> probability as an array [size]."""
    found = np.zeros(size)
    found[list(probabilities)] = list(probabilities.values())
    return found
