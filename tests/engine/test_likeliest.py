"""Few of many: sums and the largest logits of rows of any shape and size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.cases import for_each
from tests.support.rows import ROWS, rows
from worker.engine.likeliest import fold, likeliest, log_sum
from worker.engine.output import token_logprob


@for_each("row", ROWS)
def test_the_largest_are_among_the_likeliest(row: np.ndarray) -> None:
    """Everything that reaches the count-th largest logit is there, each once and in order."""
    for count in (1, 2, 40, 300, len(row)):
        ids = likeliest(row, count)
        border = np.sort(row)[-min(count, len(row))]
        assert (np.diff(ids) > 0).all()
        assert set(np.flatnonzero(row >= border)) <= set(ids)


def test_the_likeliest_are_few() -> None:
    """With 150,000 random logits hardly more than asked for; ties at the border all stay."""
    row = np.random.default_rng(0).normal(0, 1, 151_937).astype(np.float32)
    assert len(likeliest(row, 40)) < 80
    row[:1000] = 50
    assert len(likeliest(row, 40)) == 1000


def test_a_row_that_is_no_number_has_no_likeliest() -> None:
    """Then all are there, so that whoever chooses has something to choose from."""
    assert len(likeliest(np.full(5003, np.nan, np.float32), 40)) == 5003


@for_each("row", ROWS)
def test_columns_are_every_width_th_value(row: np.ndarray) -> None:
    """Also in the last, unfinished line; the row stays as it is."""
    before = row.copy()
    for width in (1, 64, 2048):
        columns = min(width, len(row))
        want = [row[column::columns].max() for column in range(columns)]
        assert fold(row, np.maximum, width).tolist() == want
    assert np.array_equal(row, before)


@for_each("row", ROWS)
def test_logprobs_are_right_to_a_millionth(row: np.ndarray) -> None:
    """ln p against float64; the best come in order, equal ones by id, -inf stays -inf."""
    wide = row.astype(np.float64)
    exact = wide - wide.max() - math.log(np.exp(wide - wide.max()).sum())
    assert log_sum(row) == pytest.approx(wide.max() - exact.max(), rel=1e-6, abs=1e-6)
    best = np.lexsort((np.arange(len(row)), -row))
    for top in (0, 1, 5, 20):
        score = token_logprob(row, int(best[0]), top)
        assert [token for token, _ in score.top] == best[:top].tolist()
        got = np.array([value for _, value in score.top])
        assert np.allclose(got, exact[best[:top]], rtol=1e-6, atol=2e-6)
        assert not score.top or score.top[0][1] == score.logprob


def test_a_flat_row_of_a_large_vocabulary_sums_well() -> None:
    """262,144 equal weights, which a plain float32 sum gets wrong in the third digit."""
    row = rows(262_144)["equal"] + np.float32(0.1)
    assert log_sum(row) == pytest.approx(0.1 + math.log(262_144), abs=1e-5)
