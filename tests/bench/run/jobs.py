"""Jobs run in a child as a run runs them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from worker.bench.plan import BenchPlan, Corpus, Level, Questions
from worker.bench.run.runner import ask
from worker.bench.sizes import Sizes
from worker.bench.stages import BenchStage, Failure, Progress, StageJob
from worker.settings import Settings

T = TypeVar("T")


def job_of(
    stage: BenchStage[T], path: Path, settings: Settings, sizes: Sizes, *,
    corpus: Corpus | None = None, questions: Questions = "general", place: Path = Path(),
    writes: bool = False,
) -> StageJob:  # fmt: skip
    """A stage's job with one level and one thread."""
    level = Level(name="level", path=str(path))
    plan = BenchPlan(
        levels=(level,), source=None, imatrix=None, settings=settings, effort="quick", threads=1,
        corpus=corpus, questions=questions, max_kld=0.05,
    )  # fmt: skip
    return StageJob(
        stage=stage.name, plan=plan, settings=settings, sizes=sizes, level=level, path=str(path),
        place=str(place), writes=writes,
    )  # fmt: skip


def section_of(stage: BenchStage[T], job: StageJob) -> T:
    """The section that a child answers with; AssertionError with the reason where it has none."""
    with closing(ask(job)) as messages:
        for message in messages:
            if isinstance(message, Failure):
                raise AssertionError(message.message)
            if not isinstance(message, Progress):
                return msgspec.json.decode(message.section, type=stage.section)
    raise AssertionError("no section")
