"""The jobs of a fit, each done by a process of its own (`child.py`), and their frames."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from typing import TypeVar

import msgspec

from worker.bench.sections import Divergence
from worker.bench.stages import Failure, Progress, Result
from worker.child import Child
from worker.errors import BackendError, UsageError
from worker.lifecycle.server_process import clean_environment
from worker.settings import Settings

SILENCE_S = 1800.0
FEWEST_CHUNKS = 4  # of a matrix that has its time
_LAST_S = 120.0  # for a chunk that is being computed, and the file

T = TypeVar("T")


class MatrixJob(msgspec.Struct, frozen=True, kw_only=True, tag="matrix"):
    """Compute an importance matrix.

    texts      each is cut into chunks by itself
    dataset    what the file calls them
    target     an unfinished matrix of the same origin there is continued
    chunks     at most
    seconds    after which no chunk begins, but FEWEST_CHUNKS do; None: all do
    """

    path: str
    settings: Settings
    texts: tuple[str, ...]
    dataset: str
    target: str
    origin: str
    chunk: int
    chunks: int
    with_output: bool
    seconds: float | None = None


class MatrixMade(msgspec.Struct, frozen=True, kw_only=True):
    """chunks   that the matrix has, of `wanted`
    begun      chunks that were there before
    seconds    that the others took
    rare       weight -> experts that got less than a tenth of an even share of the tokens
    """

    chunks: int
    wanted: int
    chunk: int
    begun: int
    seconds: float
    rare: dict[str, list[int]]


class RoundingSpeedJob(msgspec.Struct, frozen=True, kw_only=True, tag="rounding speed"):
    """Measure the seconds that a weight takes to be rounded."""

    threads: int


class WeighJob(msgspec.Struct, frozen=True, kw_only=True, tag="weigh"):
    """Compute the error of tensors in encodings.

    candidates  tensor -> names of encodings
    rows        of a tensor that are looked at
    """

    path: str
    imatrix: str
    candidates: dict[str, tuple[str, ...]]
    rows: int
    threads: int


class ProbeJob(msgspec.Struct, frozen=True, kw_only=True, tag="probe"):
    """Measure the divergence that each group of tensors makes in a coarse encoding.

    groups   tensor -> encoding; each group is measured by itself
    windows  of the text, at most
    threads  that round
    """

    path: str
    settings: Settings
    imatrix: str
    text: str
    groups: tuple[dict[str, str], ...]
    window: int
    windows: int
    threads: int


class MixScoreJob(msgspec.Struct, frozen=True, kw_only=True, tag="score"):
    """Measure a file's divergence; the reference writes its rows to `place`."""

    path: str
    settings: Settings
    text: str
    place: str
    writes: bool
    window: int
    windows: int


FitJob = MatrixJob | RoundingSpeedJob | WeighJob | ProbeJob | MixScoreJob
Sections = {
    MatrixJob: MatrixMade,
    RoundingSpeedJob: float,
    WeighJob: dict[str, dict[str, float]],
    ProbeJob: list[float],
    MixScoreJob: Divergence,
}
Frame = Progress | Failure | Result
Progressing = Generator[float, None, T]


def ask(job: FitJob, kind: type[T]) -> Progressing[T]:
    """Do the job in a child process; yields the share done. Raises BackendError, UsageError.

    A matrix that is closed amid its work is written as far as it is.
    """
    environment = {**clean_environment(), "GGML_NO_BACKTRACE": "1"}
    with contextlib.closing(Child("worker.bench.fit.child", environment)) as child:
        child.send(msgspec.json.encode(job))
        try:
            while (data := child.receive(SILENCE_S)) is not None:
                frame: Frame = msgspec.json.decode(data, type=Frame)
                if isinstance(frame, Progress):
                    yield frame.share
                elif isinstance(frame, Failure):
                    if frame.code == UsageError.default_code:
                        raise UsageError(frame.message)
                    raise BackendError(frame.message, code=frame.code)
                else:
                    return msgspec.json.decode(frame.section, type=kind)
        except TimeoutError:
            raise BackendError(f"Nothing was heard for {SILENCE_S:g} s.", code="SILENT") from None
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            if isinstance(job, MatrixJob):
                child.send(b"stop")
                _wait(child)
            raise
        raise BackendError(
            f"The process that computed ended with {child.ending()}.",
            hint="Run the same command again.",
            code="ABORTED",
        )


def _wait(child: Child) -> None:
    """Until the child has said its last word, but not for ever."""
    deadline = time.monotonic() + _LAST_S
    with contextlib.suppress(TimeoutError):
        while (data := child.receive(deadline - time.monotonic())) is not None:
            if not isinstance(msgspec.json.decode(data, type=Frame), Progress):
                return
