"""Drawing from a row: exact frequencies, top-p and min-p by their definitions, seeds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.support.cases import for_each
from tests.support.models import reference
from tests.support.rows import ROWS, chances, dense, fits, rows
from worker.engine.sampling import SamplingParams
from worker.llama.sampling.draw import Draw, pick
from worker.llama.sampling.workspace import Workspace

LAST = math.nextafter(1, 0)


def draw(size: int, seed: int = 1, **params: Any) -> Draw:
    return Draw(SamplingParams(**params), seed, Workspace(size))


@pytest.mark.parametrize("size", [1, 3, 320, 2048, 5003])
def test_each_index_is_picked_as_often_as_it_weighs(size: int) -> None:
    """Fractions in even steps: as many steps fall on an index as its weight says, no more."""
    weights = np.random.default_rng(size).integers(0, 3, size).astype(np.float32)
    weights[size // 2] = 3
    steps = int(weights.sum())
    got = [pick(weights, (step + 0.5) / steps) for step in range(steps)]
    assert np.array_equal(np.bincount(got, minlength=size), weights)


@pytest.mark.parametrize("size", [3, 320, 2048, 2049, 5003])
def test_no_weight_is_never_picked(size: int) -> None:
    """Not at the ends of the fractions either, wherever the only weights are."""
    rng = np.random.default_rng(size)
    for place in (0, 1, size // 2, size - 2, size - 1, *map(int, rng.integers(0, size, 50))):
        weights = np.zeros(size, np.float32)
        weights[place] = rng.choice([1e-42, 1e-30, 0.3, 1.0])
        assert {pick(weights, fraction) for fraction in (0.0, 0.5, LAST, 1.0)} == {place}
        other = int(rng.integers(size))
        weights[other] = 1
        picked = {pick(weights, fraction) for fraction in (0.0, 0.3, 0.7, LAST, 1.0)}
        assert picked <= {place, other}


@for_each("row", ROWS)
@for_each("p", [0.0, 0.1, 0.5, 0.95])
def test_top_p_is_the_smallest_set(row: np.ndarray, p: float) -> None:
    """Inside are those whose likelier ones have less than p, to 1e-5; the likeliest always."""
    sampler = draw(len(row), top_p=p)
    order = np.lexsort((np.arange(len(row)), -row))
    right = reference.probabilities(row)[order]
    likelier = np.cumsum(right) - right
    sure = set(order[(likelier < p - 1e-5) & (right > 1e-37)]) | {order[0]}
    never = set(order[1:][likelier[1:] > p + 1e-5])
    if len(row) < 2000:  # each token asks for a pass over the row
        inside = chances(sampler, row).keys()
        assert sure <= inside
        assert not inside & never
    assert not {sampler.choose(row) for _ in range(30)} & never


@for_each("row", ROWS)
@for_each("p", [0.001, 0.05, 1.0])
def test_min_p_is_its_definition(row: np.ndarray, p: float) -> None:
    """All within ln p of the largest logit."""
    got = chances(draw(len(row), min_p=p, temperature=0.7), row)
    want = reference.temperature(reference.min_p(row, p), 0.7)
    assert got.keys() == reference.survivors(want)
    right = reference.probabilities(want)
    assert all(got[i] == pytest.approx(right[i], rel=1e-4) for i in got)


@for_each(
    "params",
    [
        {},
        {"temperature": 0.6},
        {"top_p": 0.6},
        {"top_p": 0.6, "temperature": 0.7},
        {"top_p": 0.3, "temperature": 5.0},
        {"top_p": 0.9, "min_p": 0.01, "temperature": 1.5},
    ],
)
@for_each("name", ["random", "tied", "holes"])
def test_draws_follow_their_probabilities(name: str, params: dict[str, Any]) -> None:
    """2,000 draws fit the definitions; what top-p refuses changes nothing about the rest."""
    row = rows(1025)[name]
    wanted = reference.top_p(row, params.get("top_p", 1))
    wanted = reference.min_p(wanted, params.get("min_p", 0))
    right = reference.probabilities(reference.temperature(wanted, params.get("temperature", 1)))
    sampler = draw(len(row), **params)
    assert np.allclose(dense(chances(sampler, row), len(row)), right, rtol=1e-4, atol=1e-7)
    drawn = [sampler.choose(row) for _ in range(2000)]
    assert right[drawn].all()
    assert fits(drawn, right)


def test_a_seed_repeats() -> None:
    """Equal seeds give equal draws, others do not."""
    row = rows(5003)["random"]
    drawn: list[list[int]] = []
    for seed in (7, 7, 8):
        sampler = draw(len(row), seed, top_p=0.9)
        drawn.append([sampler.choose(row) for _ in range(40)])
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_without_a_distribution_gives_a_token(value: float) -> None:
    """A broken model's logits end in some token, not in a loop."""
    assert 0 <= draw(320, top_p=0.5).choose(np.full(320, value, np.float32)) < 320
