"""One level: loaded, run, served, compared with the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from worker import machine
from worker.bench.cache import key_of, remove
from worker.bench.files import File, make_file, open_file
from worker.bench.job import (
    LoadAnswer,
    LoadJob,
    MachineAnswer,
    QualityAnswer,
    QualityJob,
    ServeAnswer,
    ServeJob,
    SpeedAnswer,
    SpeedJob,
)
from worker.bench.levels import Answers, level_quality, level_report
from worker.bench.plan import SEED, Level, Plan, Probe, Sizes, expected_s, settings_of
from worker.bench.reference import MAX_BYTES, is_whole
from worker.bench.results import LevelReport, NoiseFloor
from worker.bench.stages import Events, StageFailed, Stages
from worker.model.config import ModelConfig

_BATCH_ROWS, _OTHER_BATCH_ROWS = 512, 96
_START_S = 0.6  # of a process, with its imports and a small model
_QUANTISE_PER_S, _LOAD_PER_S = 40e6, 1.5e9  # weights, bytes
_OTHER_SEED = 1_000_000  # far from the prompts of the first pass

Stage = Callable[[Level, File, Answers], Events[Answers]]


class Measure:
    """Measures the levels of a plan, the reference first.

    base            everything besides the file that bears on a result
    text_tokens, reference_rows  of the reference, once it was scored
    """

    def __init__(self, stages: Stages, plan: Plan, base: Any, found: MachineAnswer) -> None:
        self._stages, self._plan, self._base, self._found = stages, plan, base, found
        self._rows: Path | None = None
        self._files: dict[str, File] = {}
        self._found_of: dict[str, Answers] = {}
        self._errors: dict[str, dict[str, str]] = {}
        self.text_tokens: int | None = None
        self.reference_rows: tuple[int, int] | None = None
        self.noise_floor: NoiseFloor | None = None

    def make(self, level: Level, source: File | None) -> Events[File]:
        """The level's file. Raises StageFailed where it cannot be made, ModelFileError."""
        if level.path is not None:
            return (yield from open_file(self._stages, level, Path(level.path)))
        assert source is not None
        keep = frozenset([self._rows] if self._rows else [])
        return (yield from make_file(
            self._stages, level, source, self._plan, self._found.build.bindings, keep
        ))  # fmt: skip

    def start(self, sizes: Sizes, probe: Probe, reference: ModelConfig) -> None:
        """Settle the sizes, and tell the clock what is ahead."""
        self._sizes, self._settings = sizes, settings_of(self._plan, sizes)
        plan, clock, slots = self._plan, self._stages.clock, self._settings.slots
        third = expected_s(sizes, probe, slots, quality=False) / 3
        scoring = expected_s(sizes, probe, slots, quality=True) - 3 * third
        weights, size = reference.n_params, reference.size_bytes
        start = _START_S + size / _LOAD_PER_S
        for index, level in enumerate(plan.levels):
            if level.path is None:
                clock.expect(level.name, "quantise", weights / _QUANTISE_PER_S)
            clock.expect(level.name, "load", _START_S + 3 * sizes.loads * size / _LOAD_PER_S)
            clock.expect(level.name, "speed", start + third)
            clock.expect(level.name, "serve", _START_S + start + third)
            clock.expect(level.name, "serve again", _START_S + start + third)
            if plan.corpus is not None:
                clock.expect(level.name, "quality", start + scoring)
                if not index:
                    clock.expect(level.name, "noise floor", start + 2 * scoring)

    def skip(self, level: Level) -> None:
        """Nothing more will come of a level."""
        self._stages.clock.drop(level.name)

    def level(self, level: Level, file: File) -> Events[LevelReport]:
        """Run all stages but the second pass; a stage that fails costs no other."""
        self._files[level.name] = file
        self._found_of[level.name], self._errors[level.name] = Answers(), {}
        for stage, run in (("load", self._load), ("speed", self._speed), ("serve", self._serve),
                           ("quality", self._quality)):  # fmt: skip
            failure = yield from self._try(level, file, stage, run)
            # Where these are the reason, no stage will do better.
            if failure is not None and failure.code in ("DOES_NOT_FIT", "MODEL_LOAD_FAILED"):
                self.skip(level)
                break
        return self.report(level)

    def serve_again(self, level: Level) -> Events[LevelReport]:
        """The second pass over HTTP, where there was a first and the file is still here."""
        file = self._files[level.name]
        if self._found_of[level.name].serve is not None and Path(file.path).exists():
            yield from self._try(level, file, "serve again", self._serve_again)
        self.skip(level)
        return self.report(level)

    def _try(self, level: Level, file: File, stage: str, run: Stage) -> Events[StageFailed | None]:
        try:
            found = yield from run(level, file, self._found_of[level.name])
        except StageFailed as failure:
            self._errors[level.name][stage] = str(failure)
            return failure
        self._found_of[level.name] = found
        return None

    def report(self, level: Level) -> LevelReport:
        """What is known of a level by now."""
        return level_report(
            level, self._files[level.name], self._found_of[level.name],
            self._found.machine.bandwidth, self._errors[level.name],
            cached=[stage for name, stage in self._stages.cached if name == level.name],
            is_reference=level is self._plan.levels[0],
        )  # fmt: skip

    def _key(self, stage: str, file: File, *more: Any) -> str:
        return key_of(stage, self._base, self._sizes, self._settings, file.sha256, *more)

    def _load(self, level: Level, file: File, found: Answers) -> Events[Answers]:
        job = LoadJob(path=file.path, settings=self._settings, sizes=self._sizes)
        answer = yield from self._stages.run(
            level.name, "load", job, LoadAnswer, self._key("load", file)
        )
        return msgspec.structs.replace(found, load=answer.loading)

    def _speed(self, level: Level, file: File, found: Answers) -> Events[Answers]:
        job = SpeedJob(path=file.path, settings=self._settings, sizes=self._sizes)
        answer = yield from self._stages.run(
            level.name, "speed", job, SpeedAnswer, self._key("speed", file)
        )
        return msgspec.structs.replace(found, speed=answer)

    def _serve(self, level: Level, file: File, found: Answers) -> Events[Answers]:
        job = ServeJob(path=file.path, settings=self._settings, sizes=self._sizes, seed=SEED)
        answer = yield from self._stages.run(
            level.name, "serve", job, ServeAnswer, self._key("serve", file)
        )
        return msgspec.structs.replace(found, serve=answer)

    def _serve_again(self, level: Level, file: File, found: Answers) -> Events[Answers]:
        job = ServeJob(path=file.path, settings=self._settings, sizes=self._sizes, seed=_OTHER_SEED)
        answer = yield from self._stages.run(
            level.name, "serve again", job, ServeAnswer, self._key("serve again", file)
        )
        return msgspec.structs.replace(found, serve_again=answer)

    def _quality(self, level: Level, file: File, found: Answers) -> Events[Answers]:
        if self._plan.corpus is None:
            return found
        if level is self._plan.levels[0]:
            answer = yield from self._write_reference(level, file)
            yield from self._measure_noise(level, file)
        elif self._rows is None:
            raise StageFailed("NO_REFERENCE", "The reference could not be scored.")
        else:
            job = self._job(file, self._rows)
            key = self._key("quality", file, self._rows.name)
            answer = yield from self._stages.run(
                level.name, "quality", job, QualityAnswer, key, timing=False
            )
        return msgspec.structs.replace(found, quality=answer)

    def _write_reference(self, level: Level, file: File) -> Events[QualityAnswer]:
        """Score the reference and keep its rows, unless an earlier run did."""
        cache, key = self._stages.cache, self._key("reference", file)
        rows = cache.reference(key)
        partial = rows.with_name(f"{key}.partial")
        if not is_whole(rows):
            cache.forget(key)
            for folder in (rows, partial):
                remove(folder)
            cache.make_room(MAX_BYTES, keep=frozenset([Path(file.path)]))
        job = msgspec.structs.replace(self._job(file, partial), writes=True)
        try:
            answer = yield from self._stages.run(
                level.name, "quality", job, QualityAnswer, key, timing=False
            )
            if not rows.exists():
                partial.rename(rows)
        finally:
            remove(partial)
        cache.use(rows)
        self._rows = rows
        self.text_tokens = answer.text_tokens
        self.reference_rows = (answer.head, answer.drawn)
        return answer

    def _measure_noise(self, level: Level, file: File) -> Events[None]:
        """The reference against itself; what it differs by is no property of any level."""
        assert self._rows is not None
        plan = self._plan
        threads = plan.threads // 2 or min(2, machine.usable_cpus())
        job = msgspec.structs.replace(
            self._job(file, self._rows), threads=threads, batch_rows=_OTHER_BATCH_ROWS
        )
        answer = yield from self._stages.run(
            level.name, "noise floor", job, QualityAnswer,
            self._key("noise", file, threads), timing=False,
        )  # fmt: skip
        self.noise_floor = NoiseFloor(
            threads=plan.threads,
            batch_rows=_BATCH_ROWS,
            other_threads=threads,
            other_batch_rows=_OTHER_BATCH_ROWS,
            quality=level_quality(answer),
        )

    def _job(self, file: File, rows: Path) -> QualityJob:
        assert self._plan.corpus is not None
        return QualityJob(
            path=file.path,
            settings=self._plan.settings,
            sizes=self._sizes,
            folder=str(rows),
            corpus=self._plan.corpus,
            questions=self._plan.questions,
            threads=self._plan.threads,
            batch_rows=_BATCH_ROWS,
        )
