"""A run of `worker bench --decisions`: each level is served and asked all questions."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from worker.bench.decisions.answers import DECISIONS
from worker.bench.decisions.questions import QuestionSet, questions_at
from worker.bench.decisions.report import (
    FORMAT,
    RULE,
    DecisionLevel,
    DecisionReport,
    LevelScores,
    beside,
    level_scores,
    recommend,
    with_answers,
)
from worker.bench.plan import BenchPlan, Level
from worker.bench.run.cache import BenchCache
from worker.bench.run.level import File, LevelRunner, begin
from worker.bench.run.runner import Event, Events, Note, Runner
from worker.bench.sections import Machine
from worker.bench.sizes import EFFORTS
from worker.bench.stages import StageJob
from worker.errors import BackendError, UsageError
from worker.files import atomic_write
from worker.model import calibration
from worker.model.calibration import DecisionCalibration, calibration_path

_EXPECTED_S = 60.0  # of a level, until the pace is known


class DecisionRun:
    """One run of a plan.

    questions  a file's path, or "" for the set that the plan names
    spared     a file that gets no calibration beside it, because its folder is the package's
    """

    def __init__(self, plan: BenchPlan, cache: BenchCache, questions: str, spared: Path) -> None:
        self._spared = spared
        settings = msgspec.structs.replace(plan.settings, decisions_calibration=False)
        self._plan = msgspec.structs.replace(plan, settings=settings)
        self._cache, self._place = cache, questions
        self._questions: QuestionSet = questions_at(questions, plan.questions)
        self._runner = Runner(cache, fresh=plan.fresh)
        self._notes: list[str] = []

    def events(self) -> Generator[Event | DecisionReport]:
        """Run it; the last report is whole. Raises WorkerError where it cannot go on at all."""
        with self._cache.lock():
            try:
                yield from self._run()
            finally:
                self._cache.make_room(0)

    def _run(self) -> Generator[Event | DecisionReport]:
        plan, runner = self._plan, self._runner
        machine, source = yield from begin(runner, plan)
        makers = LevelRunner(runner, plan, machine)
        for level in plan.levels:
            runner.agenda.expect(level.name, DECISIONS.name, _EXPECTED_S)
        found: list[DecisionLevel] = []
        reference: LevelScores | None = None
        name = ""
        for level in plan.levels:
            file = yield from makers.file_or_none(level, source, self._notes)
            if file is None:
                continue
            name = name or file.config.name or Path(file.path).stem
            made, mine = yield from self._measure(level, file)
            if mine is not None and reference is None:
                reference = mine
                made = msgspec.structs.replace(made, is_reference=True)
            elif mine is not None and reference is not None:
                made = beside(made, mine, reference)
            found.append(made)
            yield self._report(found, name, machine)
        if reference is None:
            raise BackendError(
                "No level could be asked: " + "; ".join(each.error or "" for each in found),
                code="NO_REFERENCE",
            )

    def _measure(
        self, level: Level, file: File
    ) -> Events[tuple[DecisionLevel, LevelScores | None]]:
        report = DecisionLevel(
            quant=level.name,
            is_reference=False,
            file=file.path,
            sha256=file.sha256,
            size_bytes=sum(part.size for part in file.config.files),
            bpw=file.config.bits_per_weight,
        )
        plan = self._plan
        job = StageJob(
            stage=DECISIONS.name, plan=plan, settings=plan.settings, sizes=EFFORTS[plan.effort][0],
            level=level, path=file.path, place=self._place,
        )  # fmt: skip
        if level.lora is not None:
            settings = msgspec.structs.replace(job.settings, lora=(level.lora,))
            job = msgspec.structs.replace(job, settings=settings)
        try:
            answers = yield from self._runner.run(DECISIONS, job)
        except BackendError as failure:
            if failure.code == UsageError.default_code:
                raise UsageError(str(failure)) from None
            return msgspec.structs.replace(report, error=str(failure)), None
        mine = level_scores(answers)
        report = with_answers(report, answers, mine)
        if level.lora is None and not self._spared.samefile(file.path):
            path = yield from self._write(report, file)
            report = msgspec.structs.replace(report, calibration=path)
        return report, mine

    def _write(self, level: DecisionLevel, file: File) -> Events[str | None]:
        """Write the calibration beside the level's file; its path, None if that fails."""
        settings, parts = self._plan.settings, file.config.files
        made = DecisionCalibration(
            format=calibration.FORMAT,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            model=file.config.name or Path(file.path).stem,
            sha256=file.sha256 if len(parts) == 1 else calibration.hash_of(parts),
            size_bytes=level.size_bytes,
            modified_ns=tuple(part.identity.mtime_ns for part in parts),
            prompt_version=level.prompt_version,
            orders=settings.decisions_orders,
            modes=level.modes,
            temperatures=level.temperatures,
            questions=level.questions,
            held_out=level.held_out,
        )
        path = calibration_path(file.path)
        try:
            with atomic_write(path) as partial:
                partial.write_bytes(msgspec.json.format(msgspec.json.encode(made)) + b"\n")
        except OSError as error:
            self._notes.append(f"{path} cannot be written: {error.strerror}.")
            yield Note(text=self._notes[-1])
            return None
        return str(path)

    def _report(
        self, levels: Sequence[DecisionLevel], name: str, machine: Machine
    ) -> DecisionReport:
        settings = self._plan.settings
        first = next((level for level in levels if level.is_reference), levels[0])
        return DecisionReport(
            format=FORMAT,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            model=name,
            reference=first.quant,
            questions=self._questions.name,
            questions_sha256=self._questions.sha256,
            num_questions=self._questions.num_questions,
            num_states=len(self._questions.states),
            mode=settings.decisions,
            orders=settings.decisions_orders,
            levels=tuple(levels),
            recommended=recommend(levels),
            rule=RULE,
            machine=machine,
            notes=tuple(self._notes),
        )
