"""One level: its file, and its stages one after the other."""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from worker.bench import stages
from worker.bench.plan import BenchPlan, Level, settings_of
from worker.bench.quality.reference import MAX_BYTES, is_whole
from worker.bench.report import LevelReport
from worker.bench.run.cache import key_of, remove
from worker.bench.run.fits import Fits, fit_key
from worker.bench.run.runner import Events, Note, Runner
from worker.bench.sections import FitChoice, Machine, Quality, TokenCost
from worker.bench.sizes import EFFORTS, BenchWork, Sizes, scoring_s, sizes_for, speed_s
from worker.bench.stages import BenchStage, Cost, StageJob, all_stages, first_pass, scorings
from worker.errors import BackendError, ModelFileError, WorkerError
from worker.gguf.quant import FILE_TYPES, GUESSED
from worker.model.config import ModelConfig, load_config

_USUAL_CONTEXT = 4096  # of a file that does not say what it was trained on
# Rises when what a stage measures changes, so that older sections are not taken for it.
_VERSION = 2

T = TypeVar("T")


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A level's file, with its content's hash, that of its adapter, and how a fit was chosen."""

    path: str
    sha256: str
    config: ModelConfig
    adapter: str | None = None
    fit: FitChoice | None = None


def open_file(runner: Runner, level: Level, path: Path) -> Events[File]:
    """A file that exists, read and hashed. Raises ModelFileError, BackendError."""
    config = load_config(path, purpose="serve")
    sha256 = yield from runner.hash(level.name, [Path(file.path) for file in config.files])
    return File(path=str(path), sha256=sha256, config=config)


def begin(runner: Runner, plan: BenchPlan) -> Events[tuple[Machine, File | None]]:
    """What the machine is, and the file that levels are made of; None where each has its own.

    Raises ModelFileError, BackendError.
    """
    sizes = EFFORTS[plan.effort][0]
    job = StageJob(stage=stages.MACHINE.name, plan=plan, settings=plan.settings, sizes=sizes)
    machine = yield from runner.run(stages.MACHINE, job)
    if plan.source is None:
        return machine, None
    return machine, (yield from open_file(runner, plan.levels[0], Path(plan.source)))


class LevelRunner:
    """Runs the stages of the levels of a plan, the reference first.

    noise_floor  of the reference, once it was scored
    """

    def __init__(self, runner: Runner, plan: BenchPlan, machine: Machine) -> None:
        self._runner, self._plan, self._machine = runner, plan, machine
        self._sizes, self._settings = EFFORTS[plan.effort][0], plan.settings  # until `start`
        self._rows: Path | None = None
        self._fits: Fits | None = None
        self.noise_floor: Quality | None = None

    def probe(self, level: Level, file: File) -> Events[TokenCost]:
        """How long a token of the reference takes. Raises BackendError."""
        key = self._key(stages.PROBE, file.sha256, "")
        return (yield from self._run(stages.PROBE, level, file.path, Path(), key))

    def start(self, cost: TokenCost, reference: ModelConfig) -> tuple[Sizes, float]:
        """Settle the sizes, and plan what is ahead: seconds, as far as they can be known.

        Raises UsageError if the model's context is too short to measure anything.
        """
        plan = self._plan
        self._fits = Fits(self._runner, plan, cost)
        idle = Cost(weights=reference.n_params, size=reference.size_bytes,
                    loads=EFFORTS[plan.effort][0].loads, test_s=0.0, scoring_s=0.0,
                    **self._fits.expected_s(reference.n_params))  # fmt: skip
        work = BenchWork(
            context=reference.context or _USUAL_CONTEXT,
            streams=plan.settings.slots,
            levels=len(plan.levels),
            scorings=scorings(plan),
            questions=plan.own_questions and plan.own_questions[1],
        )
        computing = plan.time_s - sum(found for _, _, found in self._forecast(idle))
        sizes = sizes_for(plan.effort, cost, work, max(computing, plan.time_s / 4))
        self._sizes, self._settings = sizes, settings_of(plan, sizes)
        busy = msgspec.structs.replace(
            idle,
            loads=sizes.loads,
            test_s=speed_s(sizes, cost, work.streams) / 3,
            scoring_s=scoring_s(sizes, cost),
        )
        whole = 0.0
        for level, stage, seconds in self._forecast(busy):
            self._runner.agenda.expect(level, stage, seconds)
            whole += seconds
        return sizes, whole

    def _forecast(self, cost: Cost) -> list[tuple[str, str, float]]:
        """Level, stage and seconds of all that is ahead."""
        return [
            (level.name, stage.name, stage.expected_s(cost))
            for level in self._plan.levels
            for stage in all_stages(self._plan, level)
        ]

    def file(self, level: Level, source: File | None) -> Events[File]:
        """The level's file: the one that was given, or made from the source and kept.

        Raises BackendError where it cannot be made, ModelFileError.
        """
        if level.path is not None:
            file = yield from open_file(self._runner, level, Path(level.path))
            if level.lora is None:
                return file
            adapter = yield from self._runner.hash(level.name, [Path(level.lora.file)])
            return msgspec.structs.replace(file, adapter=adapter)
        assert source is not None
        cache, plan, maker = self._runner.cache, self._plan, self._machine.versions.bindings
        if plan.imatrix is not None:
            maker += "-" + (yield from self._runner.hash(level.name, [Path(plan.imatrix)]))[:16]
        kind = level.quant or f"{level.name.replace(':', '-')}-{fit_key(plan)}"
        target = cache.quant(source.sha256, maker, Path(source.path), kind)
        key = key_of("made", source.sha256, maker, target.name)
        file = yield from self._recall(level, target, key)
        if file is None:
            # No level takes more than 9 bits a weight, but a fit that is wanted so large.
            cache.make_room(source.config.n_params * 9 // 8, frozenset(filter(None, [self._rows])))
            if not target.parent.is_dir():
                remove(target.parent)
                target.parent.mkdir(parents=True)
            fit = None
            if level.quant is not None:
                yield from self._run(stages.QUANTISE, level, source.path, target, None)
            elif self._fits is None:
                raise BackendError("A fit needs its source, and that could not be measured.")
            else:
                fit = yield from self._fits.write(level, target)
            file = yield from open_file(self._runner, level, target)
            with contextlib.suppress(OSError):  # on a full disk it is made again next time
                cache.save(key_of(key, "fit"), fit, time.time())
                cache.save(key, file.sha256, time.time())
        for stage in stages.making(plan, level):  # a file of an earlier run takes no time
            self._runner.agenda.drop(level.name, stage.name)
        cache.use(target)
        fit = cache.load(key_of(key, "fit"), FitChoice, math.inf) if level.fit else None
        return msgspec.structs.replace(file, fit=fit)

    def file_or_none(
        self, level: Level, source: File | None, notes: list[str]
    ) -> Events[File | None]:
        """The same. One that cannot be made or read is noted, and costs no other level."""
        try:
            return (yield from self.file(level, source))
        except (WorkerError, OSError) as failure:
            notes.append(f"{level.name} is left out: {failure}")
            self._runner.agenda.drop(level.name)
            yield Note(text=notes[-1])
            return None

    def _recall(self, level: Level, target: Path, key: str) -> Events[File | None]:
        """What an earlier run made. A file that has changed since then is removed."""
        if not target.exists():
            return None
        known = self._runner.cache.load(key, str, math.inf)
        with contextlib.suppress(ModelFileError, BackendError):
            file = yield from open_file(self._runner, level, target)
            if known == file.sha256:
                return file
        remove(target)
        return None

    def measure(self, level: Level, file: File) -> Events[LevelReport]:
        """Run all stages but the second pass. A stage that fails costs no other stage."""
        report = self._new_report(level, file)
        for stage in first_pass(self._plan, level):
            report, failure = yield from self._add(report, level, stage)
            # Where these are the reason, no other stage will do better.
            if failure is not None and failure.code in ("DOES_NOT_FIT", "MODEL_LOAD_FAILED"):
                self._runner.agenda.drop(level.name)
                break
        return report

    def serve_again(self, level: Level, report: LevelReport) -> Events[LevelReport]:
        """The second pass over HTTP, where there was a first one and the file is still here."""
        if report.serve is not None and Path(report.file).exists():
            report, _ = yield from self._add(report, level, stages.SERVE_AGAIN)
        self._runner.agenda.drop(level.name)
        return report

    def _new_report(self, level: Level, file: File) -> LevelReport:
        config = file.config
        file_type = FILE_TYPES.get((config.file_type or 0) & ~GUESSED)
        return LevelReport(
            quant=level.name,
            is_reference=level is self._plan.levels[0],
            file=file.path,
            sha256=file.sha256,
            size_bytes=sum(part.size for part in config.files),
            n_params=config.n_params,
            bpw=config.bits_per_weight,
            bpw_without_embeddings=config.bits_per_weight_without_embeddings,
            file_type=file_type[0] if file_type and config.file_type is not None else None,
            encoding=config.quant,
            adapter=file.adapter,
            fit=file.fit,
            mix={name: share.elements / config.n_params for name, share in config.mix.items()},
        )

    def _add(
        self, report: LevelReport, level: Level, stage: BenchStage[Any]
    ) -> Events[tuple[LevelReport, BackendError | None]]:
        """The report with the stage's section, or with the reason why there is none."""
        failure = None
        try:
            if stage is stages.QUALITY and report.is_reference:
                section = yield from self._score_reference(report, level)
            else:
                place = self._rows_for(stage)
                key = self._key(stage, report.sha256 + _adapter_note(report, level), place.name)
                section = yield from self._run(stage, level, report.file, place, key)
            if stage is stages.NOISE_FLOOR:
                self.noise_floor = section
            else:
                report = msgspec.structs.replace(report, **{stage.field: section})
        except BackendError as caught:
            failure = caught
            errors = {**report.errors, stage.name: str(failure)}
            report = msgspec.structs.replace(report, errors=errors)
        cached = tuple(name for owner, name in self._runner.cached if owner == level.name)
        return msgspec.structs.replace(report, cached=cached), failure

    def _rows_for(self, stage: BenchStage[Any]) -> Path:
        """The reference's rows, where the stage compares with them."""
        if stage not in (stages.QUALITY, stages.NOISE_FLOOR):
            return Path()
        if self._rows is None:
            raise BackendError("The reference could not be scored.", code="NO_REFERENCE")
        return self._rows

    def _score_reference(self, report: LevelReport, level: Level) -> Events[Quality]:
        """Score the reference and keep its rows, unless an earlier run did."""
        cache, key = self._runner.cache, self._key(stages.QUALITY, report.sha256, "reference")
        rows = cache.reference(key)
        partial = rows.with_name(f"{key}.partial")
        if not is_whole(rows):
            cache.forget(key)
            for folder in (rows, partial):
                remove(folder)
            cache.make_room(MAX_BYTES, keep=frozenset([Path(report.file)]))
        try:
            section = yield from self._run(
                stages.QUALITY, level, report.file, partial, key, writes=True
            )
            if not rows.exists():
                partial.rename(rows)
        finally:
            remove(partial)
        cache.use(rows)
        self._rows = rows
        return section

    def _run(
        self, stage: BenchStage[T], level: Level, path: str, place: Path, key: str | None, *,
        writes: bool = False,
    ) -> Events[T]:  # fmt: skip
        settings = self._settings
        if level.lora is not None:
            settings = msgspec.structs.replace(settings, lora=(level.lora,))
        job = StageJob(
            stage=stage.name, plan=self._plan, settings=settings, sizes=self._sizes,
            level=level, path=path, place=str(place), writes=writes,
        )  # fmt: skip
        return self._runner.run(stage, job, key)

    def _key(self, stage: BenchStage[Any], sha256: str, rows: str) -> str:
        """A hash of everything that bears on a section.

        sha256  of the level's file
        rows    name of the reference's rows that it is compared with
        """
        plan, machine = self._plan, self._machine
        return key_of(
            stage.name, sha256, rows, self._sizes, self._settings, _VERSION, machine.versions,
            machine.cpu, machine.cpus, plan.threads, plan.corpus and plan.corpus.sha256,
            plan.questions, plan.own_questions and plan.own_questions[0].sha256,
        )  # fmt: skip


def _adapter_note(report: LevelReport, level: Level) -> str:
    """The adapter and its scale, where there is one."""
    return f"{report.adapter}:{level.lora.scale}" if level.lora is not None else ""
