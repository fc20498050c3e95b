"""What `reference.py` kept of a model, and how far a worker may be from it.

Where the tolerances come from: llama.cpp rounds what a matrix multiplies to 8 bits, the reference
does not. `differences["rounded"]` is how far the reference itself moves when it rounds so, and what
is allowed is a small multiple of that: kernels round in other orders, and attention reads cells of
16 bits.

A step of a greedy text that such rounding alone moves further than that is on an edge between two
ways, and is not compared.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

HERE = Path(__file__).parent
TAIL = math.log(0.001)  # greedy texts: less likely tokens are not compared


class Likeliest(msgspec.Struct, frozen=True):
    """The likeliest tokens after a prefix, likeliest first.

    shift: nats that rounding in other ways moved one of them by at most; 0 where not measured
    """

    ids: list[int]
    logprobs: list[float]
    shift: float = 0.0


class GreedyText(msgspec.Struct, frozen=True):
    """A prompt and its likeliest continuation: the first id of each step."""

    prompt: list[int]
    steps: list[Likeliest]


class Shift(msgspec.Struct, frozen=True):
    """Of log-probabilities, in nats: over the likeliest tokens at all positions, of the mean."""

    rms: float
    largest: float
    mean_logprob: float


class ReferenceValues(msgspec.Struct, frozen=True):
    """One model's; `scores` are the steps after the tokens of `text` at `positions`."""

    file: str
    sha256: str
    versions: dict[str, str]
    tokens: list[list[int]]
    text: list[int]
    mean_logprob: float
    positions: list[int]
    scores: list[Likeliest]
    differences: dict[str, Shift]
    greedy: list[GreedyText]
    chats: list[list[int]]

    @property
    def rms_tolerance(self) -> float:
        """Nats that the likeliest tokens' log-probabilities may be off, root mean square."""
        return 1.5 * self.differences["rounded"].rms

    @property
    def largest_tolerance(self) -> float:
        """The same for any one of them."""
        return 2.5 * self.differences["rounded"].largest

    def is_steady(self, step: Likeliest) -> bool:
        """Whether rounding moves the step no further than it moves the text."""
        return step.shift <= self.differences["rounded"].largest

    @property
    def margin(self) -> float:
        """Nats that a token may be behind the likeliest one and still be taken for it."""
        return 2 * self.largest_tolerance

    @property
    def perplexity_tolerance(self) -> float:
        """By what share the perplexity may differ."""
        return 0.01


def read_values(name: str) -> ReferenceValues:
    """name: smollm2 or gemma3"""
    return msgspec.json.decode((HERE / f"{name}.json").read_bytes(), type=ReferenceValues)
