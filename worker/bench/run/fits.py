"""The files of a run that a fit chose. What tensors harm is estimated once, before the first."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from worker.bench.fit.estimate import Estimate
from worker.bench.fit.fit import MATRIX_SHARE, PROBE_SHARE, At, BestFit, FitEvents, FitOptions
from worker.bench.fit.fit import least_s as least_fit_s
from worker.bench.plan import BenchPlan, Level
from worker.bench.run.cache import key_of
from worker.bench.run.runner import Events, Note, Runner
from worker.bench.sections import FitChoice, TokenCost
from worker.bench.stages import ESTIMATE, FIT, BenchStage
from worker.errors import WorkerError
from worker.llama.quantize.target import quantize

_SHARE = 0.2  # of the time of a run
_ROUND_PER_S = 4e6  # weights that one thread rounds; those of 2 and 3 bits search for theirs
# What is done in a stage, in its order.
_STEPS = {
    ESTIMATE.name: (
        "measuring speed",
        "computing importance",
        "estimating errors",
        "probing tensors",
        "probing encodings",
    ),
    FIT.name: ("looking at presets", "comparing mixes"),
}

T = TypeVar("T")


def fit_key(plan: BenchPlan) -> str:
    """A hash of what bears on a fit beside its source, its size and what writes it."""
    assert plan.corpus is not None
    return key_of(plan.corpus.sha256, plan.time_s)[:16]


def check_sizes(plan: BenchPlan) -> None:
    """Raises UsageError for a fit whose size no mix has, before anything is computed."""
    if plan.fits:
        fit = BestFit(_options(plan, Path()))
        for level in plan.fits:
            assert level.fit is not None
            fit.check_size(fit.bytes_of(level.fit.bits, level.fit.nbytes))


def _options(plan: BenchPlan, work: Path) -> FitOptions:
    """For all fits: what tensors harm does not depend on a size."""
    assert plan.source is not None
    assert plan.corpus is not None
    return FitOptions(
        source=Path(plan.source),
        target=work / "fit.gguf",
        dry_run=True,  # the bench writes and measures it
        texts=(Path(plan.corpus.path).read_bytes().decode(errors="replace"),),
        dataset=Path(plan.corpus.path).name,
        settings=msgspec.structs.replace(plan.settings, ctx_size=None, parallel=None),
        threads=plan.threads,
        imatrix=Path(plan.imatrix) if plan.imatrix else None,
        seconds=plan.time_s * _SHARE,
    )


class Fits:
    """The fits of a plan."""

    def __init__(self, runner: Runner, plan: BenchPlan, cost: TokenCost) -> None:
        self._runner, self._plan, self._cost = runner, plan, cost
        self._work = runner.cache.folder / "fits"
        self._found: tuple[BestFit, Estimate, Path, int] | None = None
        self._failure: WorkerError | None = None

    def expected_s(self, weights: int) -> dict[str, float]:
        """The seconds of a `Cost` that fits take, of a model with so many weights."""
        if not self._plan.fits:
            return {}
        text = 2 * self._cost.text_tokens  # two parts choose, one is scored
        least, mixes = least_fit_s(self._cost.read_s, text)
        budget = self._plan.time_s * _SHARE * (MATRIX_SHARE + PROBE_SHARE)
        rounding = weights / (_ROUND_PER_S * self._plan.threads)
        return {"fit_s": max(budget, least), "mix_s": mixes, "round_s": rounding}

    def write(self, level: Level, target: Path) -> Events[FitChoice]:
        """Choose the mix for the level's size and write it. Raises WorkerError."""
        plan, begun = self._plan, time.monotonic()
        assert plan.source is not None
        assert plan.corpus is not None
        assert level.fit is not None
        fit, estimate, imatrix, probes = yield from self._estimate(level)
        wanted = fit.bytes_of(level.fit.bits, level.fit.nbytes)
        encodings, _ = yield from self._follow(level, FIT, fit.choice(estimate, imatrix, wanted))
        recipe = fit.recipe_of(encodings, imatrix, wanted)
        options = recipe.options(imatrix)
        quantize(Path(plan.source), target, recipe.type, threads=plan.threads, options=options)
        return FitChoice(
            text=Path(plan.corpus.path).name,
            imatrix=Path(plan.imatrix).name if plan.imatrix else None,
            estimate=estimate.total(encodings),
            probes=probes,
            seconds=time.monotonic() - begun,
        )

    def _estimate(self, level: Level) -> Events[tuple[BestFit, Estimate, Path, int]]:
        """What tensors harm; once, also if it fails."""
        if self._failure is not None:
            raise self._failure
        if self._found is None:
            try:
                fit = BestFit(_options(self._plan, self._work))
                made = yield from self._follow(level, ESTIMATE, fit.estimate(self._work))
            except WorkerError as failure:
                self._failure = failure
                raise
            self._found = fit, *made
        return self._found

    def _follow(self, level: Level, stage: BenchStage[Any], events: FitEvents[T]) -> Events[T]:
        """The result of a part of a fit, whose progress is that of a stage."""
        agenda, steps = self._runner.agenda, _STEPS[stage.name]
        try:
            with contextlib.closing(events):
                while True:
                    try:
                        event = next(events)
                    except StopIteration as end:
                        return end.value
                    if isinstance(event, At):
                        share = (steps.index(event.doing) + event.share) / len(steps)
                        yield agenda.position(level.name, stage.name, share)
                    else:
                        yield Note(text=f"{level.name}: {event.text}")
        finally:
            agenda.finish(level.name, stage.name)
