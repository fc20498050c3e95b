"""Fits of a run: one estimate for all, and a file for each size."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from tests.support.models import ggufs
from worker.bench.plan import BenchPlan, held_out_part, levels_of_source, open_corpus
from worker.bench.run.cache import BenchCache
from worker.bench.run.fits import Fits, check_sizes, fit_key
from worker.bench.run.runner import Position, Runner
from worker.bench.sections import FitChoice, TokenCost
from worker.bench.stages import making
from worker.demo import HELDOUT_PATH
from worker.errors import UsageError
from worker.model.config import load_config
from worker.settings import Settings

T = TypeVar("T")


def ended(events: Generator[object, None, T]) -> tuple[list[object], T]:
    """What a generator yields, and what it returns."""
    found: list[object] = []
    while True:
        try:
            found.append(next(events))
        except StopIteration as end:
            return found, end.value


def test_sizes_share_one_estimate(tmp_path: Path) -> None:
    """The first fit estimates for all, each has its bits, and a size that no mix has costs none of
    the others."""
    source, text = tmp_path / "source.gguf", tmp_path / "text.txt"
    ggufs.write_llama(source, layers=1, embedding=256, feed_forward=256, encoding="F16")
    text.write_text(HELDOUT_PATH.read_text()[:6000])
    levels, _ = levels_of_source(source, ["fit:1", "fit:6.5", "fit:7.5", "Q8_0"], None)
    plan = BenchPlan(
        levels=levels, source=str(source), imatrix=None, settings=Settings(threads=1),
        effort="quick", threads=1, corpus=held_out_part(open_corpus(text)), questions="general",
        max_kld=0.05, time_s=10.0,
    )  # fmt: skip
    small, first, second, preset = levels[1:]
    with pytest.raises(UsageError, match=r"smallest one takes .* [\d.]+ bits per weight"):
        check_sizes(plan)
    check_sizes(msgspec.structs.replace(plan, levels=(levels[0], first, second, preset)))
    names = [[stage.name for stage in making(plan, level)] for level in levels]
    assert names == [[], ["estimate", "fit"], ["fit"], ["fit"], ["quantise"]]
    assert plan.fits == (small, first, second)
    cache = BenchCache(tmp_path / "cache")
    with cache.lock(), cache.scratch():
        fits = Fits(Runner(cache, fresh=False), plan, TokenCost(read_s=1e-4, write_s=1e-3))
        slow = TokenCost(read_s=0.01, write_s=1.0, text_tokens=10_000)
        slower, quicker = (
            Fits(Runner(cache, fresh=False), plan, cost).expected_s(8_000_000)
            for cost in (slow, msgspec.structs.replace(slow, read_s=1e-6))
        )
        # Four chunks and nine probes of eight windows, or the share of the ten seconds.
        assert quicker["fit_s"] == pytest.approx(1.6)
        assert slower["fit_s"] == pytest.approx(0.01 * (4 * 512 + 9 * 8 * 256 * 1.5))
        assert slower["mix_s"] == pytest.approx(0.01 * 4 * 8 * 256 * 1.5)
        assert slower["round_s"] == pytest.approx(2.0)
        bare = msgspec.structs.replace(plan, levels=(levels[0], preset))
        assert Fits(Runner(cache, fresh=False), bare, slow).expected_s(8_000_000) == {}
        with pytest.raises(UsageError, match="No mix of this model takes"):
            ended(fits.write(small, tmp_path / "small.gguf"))
        for level in (first, second):
            target = tmp_path / f"{level.name[4:]}.gguf"
            events, fitted = ended(fits.write(level, target))
            places = [event for event in events if isinstance(event, Position)]
            assert {place.stage for place in places} == {"fit"}
            assert [place.share for place in places] == sorted(place.share for place in places)
            assert isinstance(fitted, FitChoice)
            assert (fitted.text, fitted.imatrix) == ("text.txt", None)
            assert level.fit is not None
            assert level.fit.bits is not None
            bits = load_config(target, purpose="serve").bits_per_weight
            assert level.fit.bits - 1 < bits <= level.fit.bits
        assert not (tmp_path / "small.gguf").exists()
    assert not (cache.folder / "fits").exists()
    other = msgspec.structs.replace(plan, time_s=20.0)
    assert fit_key(plan) != fit_key(other)
    assert preset.fit is None
