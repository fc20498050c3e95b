"""The run: level by level, the reference first."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from worker.bench.plan import BenchPlan, Level
from worker.bench.report import FORMAT, BenchReport, LevelReport
from worker.bench.report.verdict import judge
from worker.bench.run.cache import BenchCache
from worker.bench.run.level import File, LevelRunner, begin
from worker.bench.run.runner import Event, Events, Note, Runner
from worker.bench.sizes import SEED
from worker.errors import UsageError, WorkerError

_LONGER = 1.2  # times what a run may take, from which on it says so first


class Bench:
    def __init__(self, plan: BenchPlan, cache: BenchCache) -> None:
        self._plan, self._cache = plan, cache
        self._runner = Runner(cache, fresh=plan.fresh)
        self._notes: list[str] = []

    def events(self) -> Generator[Event | BenchReport]:
        """Run it. Each report among the events holds what is known so far; the last one is whole.

        Raises WorkerError where the run cannot go on at all. A level that fails is reported and
        costs no other level. Closed early, the next run of the same plan goes on from there.
        """
        with self._cache.lock(), self._cache.scratch():
            try:
                yield from self._run()
            finally:
                self._cache.make_room(0)

    def forget_timings(self) -> None:
        """To be called when the report is written. Until then the same command has the report
        again without measuring."""
        self._runner.forget_timings()

    def _run(self) -> Generator[Event | BenchReport]:
        plan, runner = self._plan, self._runner
        machine, source = yield from begin(runner, plan)
        while True:
            levels, first = LevelRunner(runner, plan, machine), plan.levels[0]
            try:
                reference = yield from levels.file(first, source)
                cost = yield from levels.probe(first, reference)
                break
            except WorkerError as failure:
                plan = yield from self._without_first(plan, failure)
        sizes, expected_s = levels.start(cost, reference.config)
        if expected_s > _LONGER * plan.time_s:
            yield self._note(
                f"This takes about {minutes(expected_s)} instead of {minutes(plan.time_s)}: "
                f"{len(plan.levels)} levels of this model need that at least. Fewer --quants take "
                "less, and so does --no-quality."
            )
        found: dict[str, LevelReport] = {}

        def report() -> BenchReport:
            by_size = sorted(found.values(), key=lambda level: -level.size_bytes)
            return BenchReport(
                format=FORMAT,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                model=reference.config.name or Path(reference.path).stem,
                reference=first.name,
                effort=plan.effort,
                streams=plan.settings.slots,
                max_kld=plan.max_kld,
                levels=tuple(by_size),
                noise_floor=levels.noise_floor,
                verdict=judge(by_size, plan.max_kld),
                corpus=plan.corpus,
                time_s=plan.time_s,
                questions=_questions(plan),
                token_cost=cost,
                sizes=sizes,
                seed=SEED,
                machine=machine,
                notes=tuple(self._notes),
            )

        measured: list[Level] = []
        for level in plan.levels:
            file: File | None = reference
            if level is not first:
                file = yield from levels.file_or_none(level, source, self._notes)
            if file is not None:
                found[level.name] = yield from levels.measure(level, file)
                measured.append(level)
                yield report()
        # There and back again: what drifts evenly falls out of the comparison of levels.
        for level in reversed(measured):
            found[level.name] = yield from levels.serve_again(level, found[level.name])
            yield report()

    def _without_first(self, plan: BenchPlan, failure: WorkerError) -> Events[BenchPlan]:
        """The plan with the next level as its reference.

        Raises where there is none, or where the command line is the reason.
        """
        first, *others = plan.levels
        if failure.code == UsageError.default_code:
            raise UsageError(str(failure))
        if not others:
            raise failure
        yield self._note(
            f"{first.name} is left out, and {others[0].name} is the reference instead: {failure}"
        )
        self._runner.agenda.drop(first.name)
        return msgspec.structs.replace(plan, levels=tuple(others))

    def _note(self, text: str) -> Note:
        self._notes.append(text)
        return Note(text=text)


def _questions(plan: BenchPlan) -> str | None:
    """What the report calls the questions; None: none are asked."""
    if plan.corpus is None:
        return None
    return plan.own_questions[0].name if plan.own_questions else plan.questions


def minutes(seconds: float) -> str:
    """`75 s`, `5 min`, `1.5 h`: a time for people."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
