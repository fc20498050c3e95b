"""A worker's log-probabilities and texts beside the reference's."""

from __future__ import annotations

import math
from typing import Any

from checks.real.values import TAIL, GreedyText, Likeliest, ReferenceValues


class Distance:
    """Collects how far answers are from the reference, in nats."""

    def __init__(self, pieces: list[str]) -> None:
        """pieces: token id -> its text"""
        self._pieces = pieces
        self.found: list[float] = []

    def add(self, step: Likeliest, top: dict[str, float]) -> None:
        """top: the worker's likeliest tokens; those of the reference that are not among them count
        with the likeliest that they can be, the worker's least."""
        for token, logprob in zip(step.ids, step.logprobs, strict=True):
            least = min(top.values())
            self.found.append(abs(top.get(self._pieces[token], least) - logprob))

    def follow(self, greedy: GreedyText, choice: dict[str, Any], values: ReferenceValues) -> int:
        """Compare an answer step by step, as long as it goes the reference's way; how long.

        It may leave that way where the reference's own token is ahead by `values.margin` at most.
        """
        tokens, tops = choice["logprobs"]["tokens"], choice["logprobs"]["top_logprobs"]
        for place, step in enumerate(greedy.steps):
            if place == len(tokens):
                assert choice["finish_reason"] == "stop"
                # The reference goes on behind a token that ends; the worker's last one is there.
                ended = tokens and tokens[-1] == "" == self._pieces[greedy.steps[place - 1].ids[0]]
                assert ended or self._pieces[step.ids[0]] == "", "it ended where nothing ends"
                return place
            # Behind a sure token the others are next to impossible, and move more than prose does.
            if values.is_steady(step):
                near = sum(logprob > TAIL for logprob in step.logprobs)
                self.add(Likeliest(step.ids[:near], step.logprobs[:near]), tops[place])
            if tokens[place] != self._pieces[step.ids[0]]:
                others = dict(
                    zip(map(self._pieces.__getitem__, step.ids), step.logprobs, strict=True)
                )
                ahead = step.logprobs[0] - others.get(tokens[place], -math.inf)
                assert ahead <= values.margin, (
                    f"{tokens[place]!r} at {place}, which is behind by {ahead}"
                )
                return place + 1
        return len(greedy.steps)

    @property
    def rms(self) -> float:
        """Root of the mean square of all differences."""
        return math.sqrt(sum(each**2 for each in self.found) / len(self.found))

    @property
    def largest(self) -> float:
        """The largest of all differences."""
        return max(self.found)

    def check(self, values: ReferenceValues, *, factor: float = 1.0) -> None:
        """Assert that they are what rounding to 8 bits explains, or `factor` times that."""
        assert self.rms <= factor * values.rms_tolerance, (self.rms, self.largest)
        assert self.largest <= factor * values.largest_tolerance, (self.rms, self.largest)
