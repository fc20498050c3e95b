"""Running one stage: in a child process, or not at all where an earlier run left its section."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from worker.bench.run.cache import MAX_AGE_S, BenchCache, key_of
from worker.bench.stages import BenchStage, Failure, Progress, StageFrame, StageJob
from worker.child import Child
from worker.errors import BackendError
from worker.lifecycle.server_process import clean_environment

# A single batch of a large model can take minutes; nothing takes longer than this in silence.
SILENCE_S = 1800.0

T = TypeVar("T")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where the run is; `level` None is the machine itself.

    share  of this stage, 0 to 1
    done   of the whole run, 0 to 1; 0 until it is known what the run takes
    """

    level: str | None
    stage: str
    share: float
    done: float


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know about the run."""

    text: str


# What a run tells while it goes on, beside reports of what is known so far.
Event = Position | Note
Events = Generator[Event, None, T]


class Agenda:
    """How far a run is, by the seconds that each of its stages is expected to take."""

    def __init__(self) -> None:
        self._ahead: dict[tuple[str | None, str], float] = {}  # with the stage at work
        self._behind = 0.0
        self._is_planned = False

    def expect(self, level: str | None, stage: str, seconds: float) -> None:
        self._is_planned = True
        self._ahead[level, stage] = seconds

    def finish(self, level: str | None, stage: str) -> None:
        self._behind += self._ahead.pop((level, stage), 0.0)

    def drop(self, level: str | None, stage: str | None = None) -> None:
        """This stage need not run, or without one none of the level's that are left."""
        for key in [key for key in self._ahead if key[0] == level and stage in (None, key[1])]:
            del self._ahead[key]

    def position(self, level: str | None, stage: str, share: float) -> Position:
        """Where the run is, with `share` of this stage done."""
        behind = self._behind + share * self._ahead.get((level, stage), 0.0)
        whole = self._behind + sum(self._ahead.values())
        done = behind / whole if self._is_planned and whole else 0.0
        return Position(level=level, stage=stage, share=share, done=done)


class Runner:
    """Runs stages and tells how far they are.

    cached: (level, stage) of each section that an earlier run left
    """

    def __init__(self, cache: BenchCache, *, fresh: bool) -> None:
        self.cache, self.agenda = cache, Agenda()
        self.cached: list[tuple[str | None, str]] = []
        self._fresh = fresh
        self._timings: list[str] = []

    def run(self, stage: BenchStage[T], job: StageJob, key: str | None = None) -> Events[T]:
        """The section of the job's stage. Raises BackendError where the child has none.

        key: the section is kept under it, for a run that goes on where this one was interrupted;
             None: it is not kept
        """
        level, cache = job.level.name if job.level else None, self.cache
        if key is not None:
            if stage.is_timing:
                self._timings.append(key)
            known = None
            if not (stage.is_timing and self._fresh):
                age_s = MAX_AGE_S if stage.is_timing else float("inf")
                known = cache.load(key, stage.section, age_s)
            if known is not None:
                self.agenda.drop(level, stage.name)
                self.cached.append((level, stage.name))
                return known
        try:
            section = yield from self._ask(level, stage, job)
        finally:
            self.agenda.finish(level, stage.name)
        if key is not None:
            try:
                cache.save(key, section, time.time())
            except OSError as error:
                yield Note(
                    text=f"{stage.name} could not be kept for a later run: {error.strerror}."
                )
        return section

    def _ask(self, level: str | None, stage: BenchStage[T], job: StageJob) -> Events[T]:
        yield self.agenda.position(level, stage.name, 0.0)
        with contextlib.closing(ask(job)) as frames:
            for frame in frames:
                if isinstance(frame, Progress):
                    yield self.agenda.position(level, stage.name, frame.share)
                elif isinstance(frame, Failure):
                    raise BackendError(frame.message, code=frame.code)
                else:
                    return msgspec.json.decode(frame.section, type=stage.section)
        raise AssertionError("a job ends with a section or with a failure")

    def hash(self, level: str, paths: Sequence[Path]) -> Events[str]:
        """A file's sha256; of several parts a hash of theirs. Raises BackendError."""
        found: list[str] = []
        try:
            for path in paths:
                sha256 = yield from self._hash(level, path)
                found.append(sha256)
        except OSError as error:
            raise BackendError(f"{error.filename}: {error.strerror}.", code="IO") from None
        return found[0] if len(found) == 1 else key_of(found)

    def _hash(self, level: str, path: Path) -> Events[str]:
        shares = self.cache.sha256(path)
        while True:
            try:
                share = next(shares)
            except StopIteration as end:
                return str(end.value)
            yield self.agenda.position(level, "hash", share)

    def forget_timings(self) -> None:
        """The run is complete and its report is written: the next run takes its timings anew."""
        for key in self._timings:
            self.cache.forget(key)


def ask(job: StageJob, *, silence_s: float = SILENCE_S) -> Generator[StageFrame]:
    """Do the job in a child process; its frames, the last of which says how it ended.

    When the generator is closed, the process ends with all that it started.
    """
    environment = {**clean_environment(), "GGML_NO_BACKTRACE": "1"}
    with contextlib.closing(Child("worker.bench.measure.child", environment)) as child:
        child.send(msgspec.json.encode(job))
        try:
            while (data := child.receive(silence_s)) is not None:
                frame: StageFrame = msgspec.json.decode(data, type=StageFrame)
                yield frame
                if not isinstance(frame, Progress):
                    return
        except TimeoutError:
            yield Failure(code="SILENT", message=f"Nothing was heard for {silence_s:g} s.")
        else:
            message = f"The process ended with {child.ending()}."
            yield Failure(code="ABORTED", message=message)
