"""One token from the whole distribution, or from its likeliest part."""

from __future__ import annotations

import math
from random import Random

import numpy as np

from worker.engine.likeliest import SUMS, fold
from worker.engine.sampling import SamplingParams
from worker.llama.sampling.workspace import Workspace


class Draw:
    """Temperature, top-p and min-p without candidates and without sorting.

    A token is drawn from all weights exp((l - max l) / temperature). Where top-p has a say, it is
    asked about this one token: how much probability do the likelier ones have? If it is outside,
    its weight and those of all less likely ones become 0, and the next token is drawn from what is
    left. What is drawn at last has the distribution of the part, because a token outside leads to
    a fresh draw from a set that still holds the whole part.

    Among equal logits the smaller id counts as likelier.
    """

    def __init__(self, params: SamplingParams, seed: int, workspace: Workspace) -> None:
        self._temperature, self._top_p = params.temperature, params.top_p
        self.is_plain = params.top_p >= 1 and not params.min_p
        # p >= min_p * max p, as logits: l >= max l + ln min_p.
        self._depth = math.log(params.min_p) if params.min_p else -math.inf
        # numpy's generators take 8 ms of imports, in the first request that draws.
        self._random = Random(seed)  # noqa: S311  (a text that repeats with its seed is no secret)
        self._num_draws = 0
        self._workspace = workspace
        self._needed = 0.0  # of the sum of all plain weights, what top-p asks for

    def choose(self, row: np.ndarray) -> int:
        """An index of `row`, float32 of at most [vocab_size], which stays as it is."""
        top = row.max()
        if not np.isfinite(top):
            return int(row.argmax())
        weights = self._weigh(row, top)
        while True:
            self._num_draws += 1
            token = pick(weights, self._random.random())
            if self._top_p >= 1:
                return token
            likelier = self._likelier(row, token)
            if self._admits(likelier):
                return token
            np.multiply(weights, likelier, out=weights)

    @property
    def place(self) -> tuple[float, ...]:
        return (self._num_draws,)

    def follow(self, token: int) -> None:
        """Nothing here depends on tokens."""

    def resume(self, place: tuple[float, ...]) -> None:
        while self._num_draws < place[0]:
            self._num_draws += 1
            self._random.random()

    def free(self) -> None:
        """Nothing here is native."""

    def _weigh(self, row: np.ndarray, top: np.float32) -> np.ndarray:
        """The weights to draw from, relative to the likeliest's; as many as the row has.

        `plain` gets those without temperature, by which top-p judges.
        """
        size = len(row)
        plain, weights = self._workspace.plain[:size], self._workspace.weights[:size]
        np.subtract(row, top, out=plain)
        if self._temperature != 1:
            np.multiply(plain, np.float32(1 / self._temperature), out=weights)
            np.exp(weights, out=weights)
        if self._temperature == 1 or self._top_p < 1:
            np.exp(plain, out=plain)
        if self._temperature == 1:
            # One array for both: what becomes 0 is less likely than any token still asked about.
            weights = plain
        if self._top_p < 1:
            self._needed = self._top_p * float(fold(plain, np.add, SUMS).sum(dtype=np.float64))
        if self._depth > -math.inf:
            near = np.greater_equal(
                row, top + np.float32(self._depth), out=self._workspace.likelier[:size]
            )
            np.multiply(weights, near, out=weights)
        return weights

    def _likelier(self, row: np.ndarray, token: int) -> np.ndarray:
        """Which tokens are likelier than `token`, or as likely with a smaller id; bool."""
        likelier = np.greater(row, row[token], out=self._workspace.likelier[: len(row)])
        likelier[:token] |= np.equal(row[:token], row[token], out=self._workspace.equal[:token])
        return likelier

    def _admits(self, likelier: np.ndarray) -> bool:
        """Whether the likelier ones are fewer than top-p asks for; the likeliest is always in."""
        size = len(likelier)
        above, plain = self._workspace.above[:size], self._workspace.plain[:size]
        np.multiply(plain, likelier, out=above)
        mass = float(fold(above, np.add, SUMS).sum(dtype=np.float64))
        return mass == 0 or mass < self._needed


def pick(weights: np.ndarray, fraction: float) -> int:
    """The index at which the running sum passes `fraction` of the sum, in the order of columns.

    fraction: 0 to 1; a draw may be rounded up to 1. A weight of 0 is never picked.
    weights: float32 [n]
    """
    column, fraction = _place(fold(weights, np.add, SUMS), fraction)
    row, _ = _place(weights[column::SUMS], fraction)
    return column + row * SUMS


def _place(weights: np.ndarray, fraction: float) -> tuple[int, float]:
    """Where that is, and which fraction of this weight lies before it."""
    sums = np.cumsum(weights, dtype=np.float64)
    total = float(sums[-1])
    # The product may round up to the sum, which nothing passes.
    target = min(fraction * total, math.nextafter(total, 0))
    at = int(sums.searchsorted(target, "right"))
    before = float(sums[at - 1]) if at else 0.0
    return at, (target - before) / (float(sums[at]) - before)
