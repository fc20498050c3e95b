"""The files of a run that a fit chose. What tensors harm is estimated once, before the first."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from worker.bench.fit.estimate import Estimate
from worker.bench.fit.fit import CHUNK, At, BestFit, FitEvents, FitOptions
from worker.bench.plan import BenchPlan, FitSize, Level
from worker.bench.run.cache import key_of
from worker.bench.run.runner import Events, Note, Runner
from worker.bench.sections import FitChoice, TokenCost
from worker.bench.stages import ESTIMATE, FIT, BenchStage
from worker.errors import WorkerError
from worker.llama.quantize.target import quantize

_SHARE = 0.2  # of the time of a run
_MATRIX_SHARE = 0.4  # of that; the rest is for probes, as a fit divides its time
_CHUNKS = 4, 64  # of the importance matrix
# What is done in a stage, in its order.
_STEPS = {
    ESTIMATE.name: (
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


class Fits:
    """The fits of a plan.

    seconds  that the estimate may take
    """

    def __init__(self, runner: Runner, plan: BenchPlan, cost: TokenCost) -> None:
        self._runner, self._plan, self._cost = runner, plan, cost
        self._work = runner.cache.folder / "fits"
        self._found: tuple[BestFit, Estimate, Path, int] | None = None
        self._failure: WorkerError | None = None
        self.seconds = plan.time_s * _SHARE if plan.fits else 0.0

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
                fit = BestFit(self._options())
                made = yield from self._follow(level, ESTIMATE, fit.estimate(self._work))
            except WorkerError as failure:
                self._failure = failure
                raise
            self._found = fit, *made
        return self._found

    def _options(self) -> FitOptions:
        """For all fits: the largest, because a smaller one is checked when it is chosen."""
        plan = self._plan
        assert plan.source is not None
        assert plan.corpus is not None
        chunk_s = CHUNK * self._cost.read_s
        chunks = int(self.seconds * _MATRIX_SHARE / chunk_s) if chunk_s else _CHUNKS[1]
        options = FitOptions(
            source=Path(plan.source),
            target=self._work / "fit.gguf",
            dry_run=True,  # the bench writes and measures it
            texts=(Path(plan.corpus.path).read_bytes().decode(errors="replace"),),
            dataset=Path(plan.corpus.path).name,
            settings=msgspec.structs.replace(plan.settings, ctx_size=None, parallel=None),
            threads=plan.threads,
            imatrix=Path(plan.imatrix) if plan.imatrix else None,
            chunks=min(max(chunks, _CHUNKS[0]), _CHUNKS[1]),
            seconds=self.seconds,
        )
        fit = BestFit(msgspec.structs.replace(options, nbytes=0))
        sizes: list[FitSize] = [level.fit for level in plan.fits if level.fit is not None]
        largest = max(fit.bytes_of(size.bits, size.nbytes) for size in sizes)
        return msgspec.structs.replace(options, nbytes=largest)

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
