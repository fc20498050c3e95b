"""`FILE.decisions.json`: the temperatures that `worker bench --decisions` measured for one file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from worker.errors import WorkerError

if TYPE_CHECKING:  # the sandbox asks for the path before numpy is there
    from worker.gguf.header import ModelFile

FORMAT = "worker-decisions-1"
# Of the prompts that questions are asked with. It changes with each word of them, because all
# probabilities do: a calibration is for one version.
PROMPT_VERSION = "1"
_SUFFIX = ".decisions.json"
_MAX_BYTES = 1 << 20
_CHUNK = 1 << 20

# statement: true or false; choice: one of several; scale: one of ordered levels
QuestionKind = Literal["statement", "choice", "scale"]
ScoringMode = Literal["letters", "texts"]
KINDS: tuple[QuestionKind, ...] = ("statement", "choice", "scale")
Temperature = Annotated[float, msgspec.Meta(gt=0.0, le=1000.0)]


class CalibrationError(WorkerError, code="CALIBRATION"):
    """A calibration that cannot be used for this file."""


class TemperatureFit(msgspec.Struct, frozen=True, kw_only=True):
    """What a temperature changes on questions that it was not fitted on.

    nll, ece  without and with the temperature
    """

    questions: int
    accuracy: float
    nll: tuple[float, float]
    ece: tuple[float, float]


class DecisionCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """One file's temperatures, and what they were measured with.

    sha256          of the bytes of all files of the model, one after the other
    modified_ns     when each file was written; while it is the same, the hash is not computed again
    prompt_version, orders   how the questions were asked: others need other temperatures
    modes           letters or texts, by kind: how its temperature's questions were answered
    questions       that a temperature was fitted on, by kind
    held_out        by kind, on the other questions
    """

    format: Literal["worker-decisions-1"]
    created: str
    model: str
    sha256: str
    size_bytes: int
    modified_ns: tuple[int, ...]
    prompt_version: str
    orders: int
    modes: dict[QuestionKind, ScoringMode]
    temperatures: dict[QuestionKind, Temperature]
    questions: dict[QuestionKind, int]
    held_out: dict[QuestionKind, TemperatureFit]

    def temperature(self, kind: QuestionKind, num_options: int, mode: ScoringMode) -> float | None:
        """What divides the options' log-probabilities; None: it was not measured.

        Two options have the temperature of statements, whatever the question's type, so that a
        statement has one probability, however it is asked.
        """
        group = group_of(kind, num_options)
        return self.temperatures.get(group) if self.modes.get(group) == mode else None

    def is_for(self, prompt_version: str, orders: int) -> bool:
        """Whether questions that are asked so have these temperatures."""
        return (self.prompt_version, self.orders) == (prompt_version, orders)


def group_of(kind: QuestionKind, num_options: int) -> QuestionKind:
    """The kind whose temperature a question has."""
    return "statement" if kind == "choice" and num_options == 2 else kind


def calibration_path(model: str | Path) -> Path:
    """Where the calibration of a model lies: beside its first file."""
    return Path(f"{model}{_SUFFIX}")


def load_calibration(files: Sequence[ModelFile]) -> DecisionCalibration | None:
    """The calibration beside a model's files; None: there is none.

    Hashes the files, about a second for each GB, if they are not as they were when they were
    measured. Raises CalibrationError if it is damaged or of other files.
    """
    path = calibration_path(files[0].path)
    try:
        if not path.is_file():  # to open a pipe would wait for a writer
            return None
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise _unusable(path, "is too large")
        found = msgspec.json.decode(data, type=DecisionCalibration)
        same = [file.identity.mtime_ns for file in files] == list(found.modified_ns)
        if found.size_bytes != sum(file.size for file in files) or (
            not same and found.sha256 != hash_of(files)
        ):
            raise _unusable(path, "was measured for another file")
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise _unusable(path, f"is damaged: {str(error)[:200]}") from None
    return found


def _unusable(path: Path, why: str) -> CalibrationError:
    return CalibrationError(
        f"{path.name} {why}.", hint="Measure it again with `worker bench --decisions`."
    )


def hash_of(files: Sequence[ModelFile]) -> str:
    """The sha256 of the bytes of these files, one after the other. Raises OSError."""
    digest = hashlib.sha256()
    for each in files:
        with Path(each.path).open("rb", buffering=0) as file:
            while data := file.read(_CHUNK):
                digest.update(data)
    return digest.hexdigest()
