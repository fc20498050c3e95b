"""The run: level by level, the reference first."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from worker import __version__
from worker.bench.cache import Cache, key_of
from worker.bench.events import Event, Finished, LevelDone, Note
from worker.bench.files import File, open_file
from worker.bench.job import MachineAnswer, MachineJob, ProbeJob
from worker.bench.measure import Measure
from worker.bench.plan import SEED, Level, Plan, Probe, Sizes, longest_sequence, sizes_for
from worker.bench.results import FORMAT, LevelReport, Report
from worker.bench.stages import Events, StageFailed, Stages
from worker.bench.verdict import judge
from worker.errors import BackendError, UsageError, WorkerError

# Rises when what a stage measures changes, so that older results are not taken for it.
_VERSION = 1


class Bench:
    """One run of a plan."""

    def __init__(self, plan: Plan, cache: Cache) -> None:
        self._plan, self._cache = plan, cache
        self._stages = Stages(cache, fresh=plan.fresh)
        self._notes: list[str] = []

    def events(self) -> Generator[Event]:
        """Run it; the last event holds the report.

        Raises WorkerError where the run cannot go on at all. A level that fails is reported and
        costs no other one. Closed early, the next run of the same plan goes on from there.
        """
        with self._cache.locked():
            try:
                yield from self._run()
            except StageFailed as failure:
                raise BackendError(str(failure), code=failure.code) from None
            finally:
                self._cache.make_room(0)

    def forget_timings(self) -> None:
        """To call once the report is where it belongs: until then the same command has it again
        without measuring."""
        self._stages.forget_timings()

    def _run(self) -> Events[None]:
        plan, stages = self._plan, self._stages
        found = yield from stages.run(
            None, "machine", MachineJob(threads=plan.threads), MachineAnswer, None
        )
        base = (_VERSION, __version__, found.build, found.machine.cpu, found.machine.cpus,
                plan.threads, plan.corpus and plan.corpus.sha256, plan.questions)  # fmt: skip
        source: File | None = None
        if plan.source is not None:
            source = yield from open_file(stages, plan.levels[0], Path(plan.source))
        measure = Measure(stages, plan, base, found)
        while True:
            try:
                reference, probe = yield from self._begin(measure, source, base)
                break
            except (StageFailed, WorkerError) as failure:
                yield from self._go_on_without(failure)
                plan = self._plan
                measure = Measure(stages, plan, base, found)
        first = plan.levels[0]
        sizes = sizes_for(
            plan.effort, probe, longest_sequence(reference.config), plan.settings.slots,
            quality=plan.corpus is not None,
        )  # fmt: skip
        measure.start(sizes, probe, reference.config)
        measured: list[Level] = []
        for level in plan.levels:
            try:
                file = reference if level is first else (yield from measure.make(level, source))
            except (StageFailed, WorkerError, OSError) as failure:
                yield self._note(f"{level.name} is left out: {failure}")
                measure.skip(level)
                continue
            yield LevelDone(level=(yield from measure.level(level, file)))
            measured.append(level)
        # There and back again: what drifts evenly falls out of the comparison of levels.
        reports: list[LevelReport] = []
        for level in reversed(measured):
            reports.append((yield from measure.serve_again(level)))
            yield LevelDone(level=reports[-1])
        yield Finished(report=self._report(reports, measure, found, sizes, reference))

    def _begin(
        self, measure: Measure, source: File | None, base: Any
    ) -> Events[tuple[File, Probe]]:
        """The reference's file, and how fast it is."""
        plan, first = self._plan, self._plan.levels[0]
        file = yield from measure.make(first, source)
        job = ProbeJob(path=file.path, settings=plan.settings, corpus=plan.corpus)
        key = key_of("probe", base, file.sha256, plan.settings)
        probe = yield from self._stages.run(first.name, "probe", job, Probe, key)
        return file, probe

    def _go_on_without(self, failure: StageFailed | WorkerError) -> Events[None]:
        """The next level becomes the reference, where there is one and the text is no reason."""
        first, *others = self._plan.levels
        if failure.code == UsageError.default_code:
            raise UsageError(str(failure))
        if not others:
            raise failure
        yield self._note(
            f"{first.name} is left out, and {others[0].name} is the reference instead: {failure}"
        )
        self._stages.clock.drop(first.name)
        self._plan = msgspec.structs.replace(self._plan, levels=tuple(others))

    def _note(self, text: str) -> Note:
        self._notes.append(text)
        return Note(text=text)

    def _report(
        self, levels: list[LevelReport], measure: Measure, found: MachineAnswer, sizes: Sizes,
        reference: File,
    ) -> Report:  # fmt: skip
        plan = self._plan
        levels = sorted(levels, key=lambda level: -level.size_bytes)
        return Report(
            format=FORMAT,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            model=reference.config.name or Path(reference.path).stem,
            reference=plan.levels[0].name,
            effort=plan.effort,
            streams=plan.settings.slots,
            max_kld=plan.max_kld,
            levels=tuple(levels),
            noise_floor=measure.noise_floor,
            verdict=judge(levels, plan.max_kld),
            corpus=plan.corpus,
            corpus_tokens=measure.text_tokens,
            questions=plan.questions if plan.corpus else None,
            reference_rows=measure.reference_rows,
            sizes=sizes,
            seed=SEED,
            machine=found.machine,
            build=found.build,
            notes=tuple(self._notes),
        )
