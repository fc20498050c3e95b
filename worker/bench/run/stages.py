"""The stages of a run: for each its name, its job, its section of the report, its expected cost.

A stage is one job for a child process (`measure/child.py`) and one section of the report.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from worker.bench.plan import Corpus, Level, Plan, Questions
from worker.bench.sections import (
    BareSpeed,
    HttpSpeed,
    LoadTimes,
    Machine,
    Quality,
    TokenCost,
)
from worker.bench.sizes import SEED, Sizes
from worker.machine import usable_cpus
from worker.settings import Settings

_START_S = 0.6  # of a process, with its imports and a small model
_QUANTISE_PER_S, _LOAD_PER_S = 40e6, 1.5e9  # weights, bytes
_BATCH_ROWS, _OTHER_BATCH_ROWS = 512, 96
_OTHER_SEED = 1_000_000  # far from the prompts of the first pass

T = TypeVar("T")


class MachineJob(msgspec.Struct, frozen=True, kw_only=True, tag="machine"):
    """Say what this machine and its programs are, and measure its memory's speed."""

    threads: int


class QuantiseJob(msgspec.Struct, frozen=True, kw_only=True, tag="quantise"):
    """Write `source` to `target` in another encoding."""

    source: str
    target: str
    type_name: str
    imatrix: str | None
    threads: int


class ProbeJob(msgspec.Struct, frozen=True, kw_only=True, tag="probe"):
    """Find out how long a token takes, and whether the text has tokens enough."""

    path: str
    settings: Settings
    corpus: Corpus | None


class LoadJob(msgspec.Struct, frozen=True, kw_only=True, tag="load"):
    """Measure loading."""

    path: str
    settings: Settings
    sizes: Sizes


class SpeedJob(msgspec.Struct, frozen=True, kw_only=True, tag="speed"):
    """Measure the bare loop, and the memory of its process."""

    path: str
    settings: Settings
    sizes: Sizes


class ServeJob(msgspec.Struct, frozen=True, kw_only=True, tag="serve"):
    """Measure a server over HTTP, and the memory of its process; `seed` makes the prompts."""

    path: str
    settings: Settings
    sizes: Sizes
    seed: int


class QualityJob(msgspec.Struct, frozen=True, kw_only=True, tag="quality"):
    """Score the text.

    folder      of the reference's rows
    writes      the file is the reference and writes the rows; else it is compared with them
    batch_rows  tokens computed at once
    """

    path: str
    settings: Settings
    sizes: Sizes
    folder: str
    corpus: Corpus
    questions: Questions
    threads: int
    batch_rows: int
    writes: bool = False


Job = MachineJob | QuantiseJob | ProbeJob | LoadJob | SpeedJob | ServeJob | QualityJob


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """The share of the job that is done, 0 to 1."""

    share: float


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """Why there is no section."""

    code: str
    message: str


class Result(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """The job's section, as JSON."""

    section: msgspec.Raw


Line = Progress | Failure | Result


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage is about.

    level  None for the machine
    path   the file that is measured or quantised
    place  where the child writes: a quantised file, or the folder of the reference's rows
    """

    plan: Plan
    settings: Settings
    sizes: Sizes
    level: Level | None = None
    path: str = ""
    place: Path = Path()


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a level is expected to take, by the reference.

    weights, size      of the model: how many, and bytes of the file
    loads              of the file, cold and warm each
    test_s, scoring_s  computing: a test of speed, and the text
    """

    weights: int
    size: int
    loads: int
    test_s: float
    scoring_s: float

    @property
    def start_s(self) -> float:
        """Seconds until a process has loaded the file."""
        return _START_S + self.size / _LOAD_PER_S


class Stage(msgspec.Struct, Generic[T], frozen=True):
    """A row of the table.

    section     what the child answers; the level's report has it under the stage's name
    expected_s  seconds that it is expected to take
    is_timing   it measures this moment, so the next run takes it anew
    """

    name: str
    job: Callable[[Subject], Job]
    section: type[T]
    expected_s: Callable[[Cost], float]
    is_timing: bool = True

    @property
    def field(self) -> str:
        """The level report's field for the section."""
        return self.name.replace(" ", "_")


def _machine(about: Subject) -> Job:
    return MachineJob(threads=about.plan.threads)


def _quantise(about: Subject) -> Job:
    assert about.level is not None
    assert about.level.quant is not None
    return QuantiseJob(
        source=about.path, target=str(about.place), type_name=about.level.quant,
        imatrix=about.plan.imatrix, threads=about.plan.threads,
    )  # fmt: skip


def _probe(about: Subject) -> Job:
    return ProbeJob(path=about.path, settings=about.settings, corpus=about.plan.corpus)


def _load(about: Subject) -> Job:
    return LoadJob(path=about.path, settings=about.settings, sizes=about.sizes)


def _speed(about: Subject) -> Job:
    return SpeedJob(path=about.path, settings=about.settings, sizes=about.sizes)


def _serve(about: Subject) -> Job:
    return ServeJob(path=about.path, settings=about.settings, sizes=about.sizes, seed=SEED)


def _serve_again(about: Subject) -> Job:
    return ServeJob(path=about.path, settings=about.settings, sizes=about.sizes, seed=_OTHER_SEED)


def _quality(about: Subject) -> QualityJob:
    plan = about.plan
    assert plan.corpus is not None
    return QualityJob(
        path=about.path, settings=plan.settings, sizes=about.sizes, folder=str(about.place),
        corpus=plan.corpus, questions=plan.questions, threads=plan.threads, batch_rows=_BATCH_ROWS,
    )  # fmt: skip


def _reference(about: Subject) -> Job:
    return msgspec.structs.replace(_quality(about), writes=True)


def _noise(about: Subject) -> Job:
    """The reference against itself: what it differs by is no property of any level."""
    threads = about.plan.threads // 2 or min(2, usable_cpus())
    return msgspec.structs.replace(_quality(about), threads=threads, batch_rows=_OTHER_BATCH_ROWS)


# name, job, section, expected seconds
MACHINE = Stage("machine", _machine, Machine, lambda _: 1.0)
QUANTISE = Stage("quantise", _quantise, int, lambda c: c.weights / _QUANTISE_PER_S)
PROBE = Stage("probe", _probe, TokenCost, lambda _: 1.0)
LOAD = Stage("load", _load, LoadTimes, lambda c: _START_S + 3 * c.loads * c.size / _LOAD_PER_S)
SPEED = Stage("speed", _speed, BareSpeed, lambda c: c.start_s + c.test_s)
SERVE = Stage("serve", _serve, HttpSpeed, lambda c: _START_S + c.start_s + c.test_s)
SERVE_AGAIN = Stage("serve again", _serve_again, HttpSpeed, SERVE.expected_s)
QUALITY = Stage("quality", _quality, Quality, lambda c: c.start_s + c.scoring_s, is_timing=False)
REFERENCE = Stage("quality", _reference, Quality, QUALITY.expected_s, is_timing=False)
NOISE_FLOOR = Stage(
    "noise floor", _noise, Quality, lambda c: c.start_s + 2 * c.scoring_s, is_timing=False
)


def first_pass(plan: Plan, level: Level) -> list[Stage[Any]]:
    """The stages that a level with a file goes through; `SERVE_AGAIN` follows for all levels."""
    quality = [REFERENCE, NOISE_FLOOR] if level is plan.levels[0] else [QUALITY]
    return [LOAD, SPEED, SERVE, *(quality if plan.corpus else [])]
