"""Log-probabilities of a text of 4,000 tokens beside torch's."""

from __future__ import annotations

import math
from typing import Any

import pytest

from checks.real.conftest import Real, complete
from tests.support.programs.processes import Server


def scores_of(server: Server, real: Real, length: int | None = None) -> dict[str, Any]:
    """The four arrays of the text's first tokens."""
    answer = complete(server, real.values.text[:length], max_tokens=0, echo=True)
    return answer["choices"][0]["logprobs"]


@pytest.fixture(scope="module")
def scored(server: Server, real: Real) -> dict[str, Any]:
    """The arrays of the whole text."""
    return scores_of(server, real)


def test_likeliest_tokens(scored: dict[str, Any], real: Real) -> None:
    """The five likeliest tokens and their probabilities, at 200 positions: 8 bits explain it."""
    found = real.comparison()
    for position, step in zip(real.values.positions, real.values.scores, strict=True):
        found.add(step, scored["top_logprobs"][position + 1])
    found.check(real.values)


def test_perplexity(scored: dict[str, Any], real: Real) -> None:
    """exp(-mean) over all tokens but the first is the reference's."""
    values = scored["token_logprobs"][1:]
    mean = sum(values) / len(values)
    ratio = math.exp(real.values.mean_logprob - mean)
    assert abs(ratio - 1) <= real.values.perplexity_tolerance, f"{ratio - 1:+.4%}"


def test_the_window_matters(real: Real) -> None:
    """The tolerance would see a window that is left out, by far."""
    if without := real.values.differences.get("unwindowed"):
        assert without.rms > 5 * real.values.rms_tolerance


def test_quantised_cells(real: Real) -> None:
    """With K in 8 bits the same holds, a little wider."""
    length = 1_000
    with real.serving("-c", "4096", "-np", "2", "-ctk", "q8_0") as server:
        tops = scores_of(server, real, length)["top_logprobs"]
    found = real.comparison()
    for position, step in zip(real.values.positions, real.values.scores, strict=True):
        if position + 1 < length:
            found.add(step, tops[position + 1])
    found.check(real.values, factor=1.5)
