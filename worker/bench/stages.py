"""The stages of a run: one table of names, sections of the report and expected seconds.

A stage is one job for a child process, which does it by its name (`measure/child.py`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from worker.bench.plan import BenchPlan, Level
from worker.bench.sections import (
    BareSpeed,
    HttpSpeed,
    LoadTimes,
    Machine,
    Quality,
    TokenCost,
    VectorSpeed,
)
from worker.bench.sizes import Sizes
from worker.errors import DiskSpaceError, WorkerError
from worker.settings import Settings

_START_S = 0.6  # of a process, with its imports and a small model
_QUANTISE_PER_S, _LOAD_PER_S = 40e6, 1.5e9  # weights, bytes

T = TypeVar("T")


class StageJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a child is asked.

    stage   name of the stage
    level   None for the machine
    path    file that is measured, or quantised
    place   where the child writes: a quantised file, or the folder of the reference's rows, vectors
    writes  the file is the reference: it writes the rows that other levels are compared with
    """

    stage: str
    plan: BenchPlan
    settings: Settings
    sizes: Sizes
    level: Level | None = None
    path: str = ""
    place: str = ""
    writes: bool = False


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """A frame of the child's answer: the share of the job that is done, 0 to 1."""

    share: float


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """The last frame of an answer: why there is no section."""

    code: str
    message: str


class Result(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """The last frame of an answer: the stage's section, as JSON."""

    section: msgspec.Raw


StageFrame = Progress | Failure | Result


def send_section(send: Callable[[StageFrame], None], work: Callable[[], object]) -> None:
    """Send what the work gives, or why there is none, as the last frame of a child."""
    try:
        send(Result(section=msgspec.Raw(msgspec.json.encode(work()))))
    except WorkerError as error:
        send(Failure(code=error.code, message=str(error)))
    except OSError as error:
        place = f"{error.filename}: " if isinstance(error.filename, str) else ""
        message, code = f"{place}{error.strerror or error}.", "IO"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            full = DiskSpaceError(message, hint="Free some room, or write to another disk.")
            message, code = str(full), full.code
        send(Failure(code=code, message=message))
    except MemoryError:
        send(Failure(code="DOES_NOT_FIT", message="There is not enough memory."))


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a level is expected to take, by the reference.

    weights, size      of the model: how many, and bytes of the file
    loads              of the file, cold and warm each
    test_s, scoring_s  seconds of computing: a test of speed, and the text
    fit_s, mix_s       seconds of computing: what tensors harm, and one fit beside presets
    round_s            seconds in which a fit rounds all weights once
    """

    weights: int
    size: int
    loads: int
    test_s: float
    scoring_s: float
    fit_s: float = 0.0
    mix_s: float = 0.0
    round_s: float = 0.0

    @property
    def start_s(self) -> float:
        """Seconds until a process has loaded the file."""
        return _START_S + self.size / _LOAD_PER_S


class BenchStage(msgspec.Struct, Generic[T], frozen=True):
    """A row of the table.

    section     what the child answers; the level's report has it in `field`
    expected_s  seconds that the stage is expected to take
    is_timing   it measures this moment, so the next run takes it anew
    """

    name: str
    section: type[T]
    expected_s: Callable[[Cost], float]
    is_timing: bool = True

    @property
    def field(self) -> str:
        """The level report's field for the section."""
        return self.name.replace(" ", "_")


MACHINE = BenchStage("machine", Machine, lambda _: 1.0)
QUANTISE = BenchStage("quantise", int, lambda cost: cost.weights / _QUANTISE_PER_S)
# The two of a fit: what tensors harm, once for all fits; and the mix for a size, and its file.
ESTIMATE = BenchStage("estimate", float, lambda c: 4 * c.start_s + c.fit_s + c.round_s)
FIT = BenchStage("fit", int, lambda c: 2 * c.start_s + c.mix_s + 4 * c.round_s)
PROBE = BenchStage("probe", TokenCost, lambda _: 1.0)
LOAD = BenchStage("load", LoadTimes, lambda c: _START_S + 3 * c.loads * c.size / _LOAD_PER_S)
SPEED = BenchStage("speed", BareSpeed, lambda cost: cost.start_s + cost.test_s)
SERVE = BenchStage("serve", HttpSpeed, lambda cost: _START_S + cost.start_s + cost.test_s)
SERVE_AGAIN = BenchStage("serve again", HttpSpeed, SERVE.expected_s)
QUALITY = BenchStage(
    "quality", Quality, lambda cost: cost.start_s + cost.scoring_s, is_timing=False
)
# Of a model that makes vectors: the child writes those of the corpus's lines.
VECTORS = BenchStage("vectors", VectorSpeed, lambda _: 1.0)
# The reference against itself: what it differs by is no property of any level.
NOISE_FLOOR = BenchStage(
    "noise floor", Quality, lambda c: c.start_s + 2 * c.scoring_s, is_timing=False
)


_SCORINGS = {QUALITY.name: 1.0, NOISE_FLOOR.name: 2.0}  # times that a stage scores the text


def all_stages(plan: BenchPlan, level: Level) -> list[BenchStage[Any]]:
    """The stages of a level, in any order."""
    return [*making(plan, level), *first_pass(plan, level), SERVE_AGAIN]


def making(plan: BenchPlan, level: Level) -> list[BenchStage[Any]]:
    """The stages in which a level gets its file."""
    if level.fit is not None:
        return [ESTIMATE, FIT] if level is plan.fits[0] else [FIT]
    return [] if level.path else [QUANTISE]


def scorings(plan: BenchPlan) -> float:
    """How often a run scores the text, as many levels' times; the reference's rows are written
    too."""
    every = [stage.name for level in plan.levels for stage in first_pass(plan, level)]
    times = sum(_SCORINGS.get(name, 0.0) for name in every)
    return times + 1 if times else 0.0


def first_pass(plan: BenchPlan, level: Level) -> list[BenchStage[Any]]:
    """The stages that a level with a file goes through; `SERVE_AGAIN` follows for all levels."""
    has_floor = level is plan.levels[0] and plan.effort != "quick"
    quality = [QUALITY, NOISE_FLOOR] if has_floor else [QUALITY]
    return [LOAD, SPEED, SERVE, *(quality if plan.corpus else [])]
