"""One measurement in a process of its own: `python -m worker.bench.child`.

A job comes as a line of JSON on standard input; progress and one answer leave as such lines on
standard output. When standard input ends, so does the process. So a level's peak memory is its
own, and a native abort costs one measurement.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from worker import log, machine
from worker.bench.client import Client
from worker.bench.corpus import MIN_WINDOW, cut, text_of
from worker.bench.fingerprint import this_build, this_machine
from worker.bench.job import (
    Failure,
    Job,
    LoadAnswer,
    LoadJob,
    MachineAnswer,
    MachineJob,
    ProbeJob,
    Progress,
    QualityJob,
    QuantiseAnswer,
    QuantiseJob,
    Result,
    ServeAnswer,
    ServeJob,
    SpeedAnswer,
    SpeedJob,
)
from worker.bench.loading import measure_loading
from worker.bench.memory import buffers_of, needs_of, process_memory, read_per_token
from worker.bench.rows import chunk_outputs
from worker.bench.scoring import score
from worker.bench.server import serving
from worker.bench.speed import Requests, measure_speed, probe
from worker.errors import WorkerError
from worker.gguf.splits import open_header
from worker.lifecycle import parent
from worker.lifecycle.loading import find_devices, memory_with, open_backend, prepare
from worker.llama.backend import LlamaBackend
from worker.llama.quantize.target import quantize
from worker.model.config import load_config
from worker.settings import Settings

_PROBE_CELLS = 512
_GLANCE = 100_000  # characters of a text, far more than the fewest tokens need


class Child:
    """Answers one job; `report` says how far it is."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._ticks = 0

    def report(self, share: float) -> None:
        """Tell the parent. Fails when it is gone, which ends this process."""
        self._write(Progress(share=share))

    def _ticking(self, count: int) -> Callable[[], None]:
        """What reports one of `count` parts at each call."""
        self._ticks = 0

        def tick() -> None:
            self._ticks += 1
            self.report(min(1.0, self._ticks / count))

        return tick

    def _write(self, line: Any) -> None:
        self._out.write(msgspec.json.encode(line) + b"\n")
        self._out.flush()

    def run(self, job: Job) -> None:
        """Do it, and write the result or why there is none."""
        try:
            value = self._answer(job)
        except WorkerError as error:
            self._write(Failure(code=error.code, message=str(error)))
        except OSError as error:
            place = f"{error.filename}: " if isinstance(error.filename, str) else ""
            self._write(Failure(code="IO", message=f"{place}{error.strerror or error}."))
        except MemoryError:
            self._write(Failure(code="DOES_NOT_FIT", message="There is not enough memory."))
        else:
            self._write(Result(value=msgspec.Raw(msgspec.json.encode(value))))

    def _answer(self, job: Job) -> Any:
        match job:
            case MachineJob():
                return MachineAnswer(machine=this_machine(job.threads), build=this_build())
            case QuantiseJob():
                made = quantize(
                    Path(job.source), Path(job.target), job.type_name,
                    threads=job.threads, imatrix=Path(job.imatrix) if job.imatrix else None,
                    on_progress=self.report,
                )  # fmt: skip
                return QuantiseAnswer(file_bytes=made.file_bytes)
            case ProbeJob():
                settings = msgspec.structs.replace(job.settings, ctx_size=_PROBE_CELLS, parallel=1)
                with open_level(Path(job.path), settings) as backend:
                    if job.corpus is not None:
                        cut(text_of(job.corpus)[:_GLANCE], backend.vocab, MIN_WINDOW, 1)
                    return probe(backend)
            case LoadJob():
                return self._load(job)
            case SpeedJob():
                return self._speed(job)
            case ServeJob():
                return self._serve(job)
            case QualityJob():
                return self._quality(job)

    def _load(self, job: LoadJob) -> LoadAnswer:
        path = Path(job.path)

        def load() -> None:
            open_level(path, settings).close()

        # Choosing the number of threads would hide how long loading takes.
        settings = _with_threads(job.settings, job.settings.threads or machine.usable_cpus())
        tick = self._ticking(2 * job.sizes.loads)
        files = [Path(file.path) for file in open_header(path).files]
        return LoadAnswer(loading=measure_loading(files, load, job.sizes.loads, tick))

    def _speed(self, job: SpeedJob) -> SpeedAnswer:
        path = Path(job.path)
        config = load_config(path)
        needs = needs_of(config, job.settings, memory_with(find_devices(job.settings)))
        with open_level(path, job.settings) as backend:
            streams = job.settings.slots
            tests = (2 if job.sizes.depth else 1) * 3 + 2
            bare = measure_speed(backend, job.sizes, streams, self._ticking(tests))
            tensors = [(tensor.name, tensor.nbytes) for tensor in open_header(path).tensors]
            buffers = buffers_of(backend)
            return SpeedAnswer(
                bare=bare,
                memory=process_memory(),
                buffers=buffers,
                needs=needs,
                threads=backend.context.threads,
                threads_batch=backend.context.threads_batch,
                read_per_token=read_per_token(config, tensors),
                is_offloaded=buffers.device_bytes > 0,
            )

    def _serve(self, job: ServeJob) -> ServeAnswer:
        path = Path(job.path)
        vocab_size = load_config(path).vocab_size
        with serving(path, job.settings) as server:
            self.report(0.2)
            client = Client(server, vocab_size, job.seed)
            counts = sorted({1, job.settings.slots})
            requests = list[Requests]()
            for index, streams in enumerate(counts, 1):
                requests.append(client.measure(job.sizes, streams))
                self.report(0.2 + 0.8 * index / len(counts))
            return ServeAnswer(requests=tuple(requests), memory=process_memory(server.pid))

    def _quality(self, job: QualityJob) -> Any:
        sizes = job.sizes
        slots = max(sizes.greedy_prompts, 1)
        cells = max(sizes.window, slots * (sizes.greedy_tokens + 40)) + 256
        settings = msgspec.structs.replace(
            _with_threads(job.settings, job.threads), parallel=slots, ctx_size=cells
        )
        outputs = chunk_outputs(load_config(job.path).vocab_size, sizes.window)
        with open_level(Path(job.path), settings, outputs=outputs) as backend:
            return score(backend, job, self.report)


def open_level(path: Path, settings: Settings, *, outputs: int = 64) -> LlamaBackend:
    """A file as the service opens it. Raises WorkerError; DoesNotFitError before anything loads."""
    return open_backend(path, settings, prepare(path, settings), chunk_outputs=outputs)


def _with_threads(settings: Settings, threads: int) -> Settings:
    """A number of threads that nothing else will be chosen for."""
    return msgspec.structs.replace(settings, threads=threads, threads_batch=threads)


def main() -> None:
    """Read the job, answer it."""
    # What native code prints must not come between the lines.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    log.configure("console", quiet=True)
    job = b""
    while not job.endswith(b"\n"):
        data = os.read(0, 1 << 16)
        if not data:
            return
        job += data
    # Standard input ends when whoever asked is gone; nobody would read the answer.
    parent.watch("stdin", lambda: os._exit(1))
    Child(out).run(msgspec.json.decode(job, type=Job))


if __name__ == "__main__":
    main()
