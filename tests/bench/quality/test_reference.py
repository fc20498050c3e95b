"""The reference's compact rows give the divergence that whole rows give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.models.reference import log_softmax
from worker.bench.quality.reference import ReferenceRows, RowShape, condense, shape_of
from worker.bench.quality.scoring import compare
from worker.bench.quality.windows import Windows, log_sums

RNG = np.random.default_rng(3)
VOCAB, ROWS = 500, 40
REFERENCE = (RNG.normal(0, 3, (ROWS, VOCAB))).astype(np.float32)
LEVEL = (REFERENCE + RNG.normal(0, 0.4, REFERENCE.shape)).astype(np.float32)
TARGETS = RNG.integers(0, VOCAB, ROWS).astype(np.int32)


def exact_kld() -> np.ndarray:
    """Σ p (ln p - ln q) of each row, by the definition."""
    p, q = log_softmax(REFERENCE), log_softmax(LEVEL)
    return (np.exp(p) * (p - q)).sum(axis=1)


def test_log_sums_are_exact_enough() -> None:
    """Single precision inside costs less than a millionth."""
    exact = np.log(np.exp(REFERENCE.astype(np.float64)).sum(axis=1))
    assert np.abs(log_sums(REFERENCE) - exact).max() < 1e-6


def test_whole_rows_are_exact() -> None:
    """With a head as wide as the vocabulary there is no sampling error."""
    block = condense(REFERENCE, TARGETS, RowShape(head=VOCAB, drawn=0), seed=0)
    found = compare(LEVEL, TARGETS, block)
    assert np.abs(found.kld - exact_kld()).max() < 2e-6
    assert (found.sampling == 0).all()
    rows = np.arange(ROWS)
    assert np.abs(found.nll + log_softmax(LEVEL)[rows, TARGETS]).max() < 2e-6
    assert np.abs(found.nll_reference + log_softmax(REFERENCE)[rows, TARGETS]).max() < 2e-6
    same = LEVEL.argmax(axis=1) == REFERENCE.argmax(axis=1)
    assert (found.same == same).all()
    assert 0 < same.mean() < 1


def test_a_row_keeps_its_likeliest_and_the_mass_of_the_others() -> None:
    """The head is ranked, nothing outside of it is likelier, and all mass is accounted for."""
    block = condense(REFERENCE, TARGETS, RowShape(head=50, drawn=16), seed=0)
    p = np.exp(log_softmax(REFERENCE))
    head = block.ids[:, :50]
    for row in range(ROWS):
        assert list(head[row]) == list(np.argsort(-p[row])[:50])
        assert not set(block.ids[row, 50:]) & set(head[row])
        assert p[row, head[row]].sum() + block.tail[row] == pytest.approx(1, abs=1e-6)
    assert (block.top == REFERENCE.argmax(axis=1)).all()


def test_the_sampled_part_is_right_on_average() -> None:
    """Over many draws the mean divergence is the exact one, and errs by what it says it errs by."""
    exact = float(exact_kld().mean())
    p, q = log_softmax(REFERENCE), log_softmax(LEVEL)
    head = np.argsort(-p, axis=1)[:, :30]
    without = (np.exp(p) * (p - q))[np.arange(ROWS)[:, None], head].sum(axis=1).mean()
    shape = RowShape(head=30, drawn=8)
    means: list[float] = []
    said: list[float] = []
    for seed in range(300):
        found = compare(LEVEL, TARGETS, condense(REFERENCE, TARGETS, shape, seed=seed))
        means.append(float(found.kld.mean()))
        said.append(float(np.sqrt((found.sampling**2).sum()) / ROWS))
    spread = float(np.std(means))
    assert abs(np.mean(means) - exact) < 4 * spread / np.sqrt(300)
    assert abs(without - exact) > 20 * spread / np.sqrt(300)  # the head alone would be wrong
    assert spread < 1.3 * float(np.mean(said))  # drawing from even shares errs less than it says
    assert spread > 0.2 * float(np.mean(said))


@pytest.mark.parametrize("rows", [255, 10_000, 1_000_000])
@pytest.mark.parametrize("vocab", [2048, 32_000, 262_144])
def test_rows_stay_within_their_bound(rows: int, vocab: int) -> None:
    """Eight bytes an entry, 256 MiB in all; whole rows where they fit."""
    shape = shape_of(rows, vocab)
    assert shape.head >= 1
    assert rows * (shape.head + shape.drawn) * 8 <= 256 << 20
    assert (shape.head + shape.drawn) <= vocab
    if rows * vocab * 8 <= 256 << 20:
        assert shape == RowShape(head=vocab, drawn=0)
    else:
        assert shape.drawn >= 1


def test_rows_come_back_from_disk(tmp_path: Path) -> None:
    """What was written is read, windows included, and takes no more than it says."""
    windows = Windows(tokens=RNG.integers(0, VOCAB, (1, 82)).astype(np.int32), first=41,
                      num_tokens=90)  # fmt: skip
    shape = RowShape(head=20, drawn=4)
    block = condense(REFERENCE, TARGETS, shape, seed=5)
    ReferenceRows.create(tmp_path / "rows", windows, shape).write(0, block)
    again = ReferenceRows(tmp_path / "rows")
    assert again.shape == shape
    assert (again.windows.tokens == windows.tokens).all()
    assert (again.windows.first, again.windows.num_tokens) == (41, 90)
    read = again.read(0)
    for name in ("ids", "top", "logp", "tail", "target"):
        assert (getattr(read, name) == getattr(block, name)).all()
    size = sum(file.stat().st_size for file in (tmp_path / "rows").iterdir())
    assert size < ROWS * ((shape.head + shape.drawn) * 8 + 40) + 4096
