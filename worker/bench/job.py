"""What a child process is asked, and what it answers: JSON, a line each."""

from __future__ import annotations

import msgspec

from worker.bench.choices import Choices
from worker.bench.fingerprint import Build, Machine
from worker.bench.greedy import Greedy
from worker.bench.loading import Loading
from worker.bench.memory import Buffers, Needs, ProcessMemory
from worker.bench.plan import Corpus, Questions, Sizes
from worker.bench.quality import Quality
from worker.bench.speed import BareSpeed, Requests
from worker.settings import Settings


class MachineJob(msgspec.Struct, frozen=True, kw_only=True, tag="machine"):
    """Say what this machine and this build are, and measure its memory's speed."""

    threads: int


class QuantiseJob(msgspec.Struct, frozen=True, kw_only=True, tag="quantise"):
    """Write `source` to `target` in another encoding."""

    source: str
    target: str
    type_name: str
    imatrix: str | None
    threads: int


class ProbeJob(msgspec.Struct, frozen=True, kw_only=True, tag="probe"):
    """Find out how large the measurements may be, and that there is text enough."""

    path: str
    settings: Settings
    corpus: Corpus | None


class LoadJob(msgspec.Struct, frozen=True, kw_only=True, tag="load"):
    """Measure loading."""

    path: str
    settings: Settings
    sizes: Sizes


class SpeedJob(msgspec.Struct, frozen=True, kw_only=True, tag="speed"):
    """Measure the bare loop and the memory of its process."""

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
    """Score the text. With `writes` the file becomes the reference in `folder`, else it is
    compared with it.

    batch_rows  tokens computed at once; another number, and other threads, for the noise floor
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


class MachineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Fingerprints."""

    machine: Machine
    build: Build


class QuantiseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The file is there."""

    file_bytes: int


class SpeedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`threads` for one row and for several, as chosen."""

    bare: BareSpeed
    memory: ProcessMemory | None
    buffers: Buffers
    needs: Needs
    threads: int
    threads_batch: int
    read_per_token: int
    is_offloaded: bool


class LoadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Loading times."""

    loading: Loading


class ServeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Requests at 1 and at N streams; the server's memory after them."""

    requests: tuple[Requests, ...]
    memory: ProcessMemory | None


class QualityAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Distances from the reference, of which the reference itself has none."""

    quality: Quality
    choices: Choices
    greedy: Greedy
    head: int
    drawn: int
    text_tokens: int


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """The share of the job that is done, 0 to 1."""

    share: float


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """Why there is no result."""

    code: str
    message: str


class Result(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """The stage's answer."""

    value: msgspec.Raw


Line = Progress | Failure | Result
