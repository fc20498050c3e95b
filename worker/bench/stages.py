"""Running one stage: from an earlier run where it is known, else in a child's process."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from worker.bench.cache import MAX_AGE_S, Cache, key_of
from worker.bench.clock import Clock
from worker.bench.events import Event, Note, Step
from worker.bench.job import Failure, Job, Progress
from worker.bench.process import ask

T = TypeVar("T")
Events = Generator[Event, None, T]


class StageFailed(Exception):  # noqa: N818  (a condition of one stage, not of the run)
    """A stage gave no result; `code` as in errors, the text says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Stages:
    """Runs stages and tells how far they are.

    cached: (level, stage) whose result an earlier run left
    """

    def __init__(self, cache: Cache, *, fresh: bool) -> None:
        self.cache, self.clock = cache, Clock()
        self.cached: list[tuple[str | None, str]] = []
        self._fresh = fresh
        self._timings: list[str] = []

    def run(
        self, level: str | None, stage: str, job: Job, kind: type[T], key: str | None,
        *, timing: bool = True,
    ) -> Events[T]:  # fmt: skip
        """The stage's answer. Raises StageFailed.

        key: under which the answer is kept for a run that goes on where this one was
             interrupted; None: it is not kept
        timing: whether it tells of this moment, so that a run that begins anew takes it anew
        """
        if key is not None:
            if timing:
                self._timings.append(key)
            known = None
            if not (timing and self._fresh):
                known = self.cache.load(key, kind, MAX_AGE_S if timing else float("inf"))
            if known is not None:
                self.clock.begin(level, stage)
                self.clock.end(measured=False)
                self.cached.append((level, stage))
                return known[0]
        self.clock.begin(level, stage)
        try:
            answer = yield from self._ask(level, stage, job, kind)
        finally:
            self.clock.end()
        if key is not None:
            try:
                self.cache.save(key, answer, time.time())
            except OSError as error:
                yield Note(text=f"{stage} could not be kept for a later run: {error.strerror}.")
        return answer

    def _ask(self, level: str | None, stage: str, job: Job, kind: type[T]) -> Events[T]:
        yield self._step(level, stage, 0.0)
        with closing(ask(job)) as messages:
            for message in messages:
                if isinstance(message, Progress):
                    yield self._step(level, stage, message.share)
                elif isinstance(message, Failure):
                    raise StageFailed(message.code, message.message)
                else:
                    return msgspec.json.decode(message.value, type=kind)
        raise AssertionError("a job ends with a result or with a failure")

    def hash(self, level: str | None, paths: Sequence[Path]) -> Events[str]:
        """The content's hash: the sha256 of a file, or of its parts' ones where it has several.

        Raises StageFailed where it cannot be read.
        """
        self.clock.begin(level, "hash")
        found: list[str] = []
        try:
            for path in paths:
                sha256 = yield from self._hash(level, path)
                found.append(sha256)
        except OSError as error:
            raise StageFailed("IO", f"{error.filename}: {error.strerror}.") from None
        finally:
            self.clock.end()
        return found[0] if len(found) == 1 else key_of(found)

    def _hash(self, level: str | None, path: Path) -> Events[str]:
        shares = self.cache.sha256(path)
        while True:
            try:
                share = next(shares)
            except StopIteration as end:
                return str(end.value)
            yield self._step(level, "hash", share)

    def _step(self, level: str | None, stage: str, share: float) -> Step:
        done, left = self.clock.left(share)
        return Step(level=level, stage=stage, share=share, done=done, left_s=left)

    def forget_timings(self) -> None:
        """The run is complete and reported: the next one takes its timings anew."""
        for key in self._timings:
            self.cache.forget(key)
