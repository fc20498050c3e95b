"""One stage in a process of its own: `python -m worker.bench.measure.child`.

It gets a StageJob and sends Progress, and then one section of the report or why there is none. So
a level's peak memory is its own, and a native abort costs one stage.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from worker import log, machine
from worker.bench import stages
from worker.bench.cells.scores import CELLS
from worker.bench.decisions.answers import DECISIONS
from worker.bench.measure.asking import ask_level
from worker.bench.measure.bare_loop import measure_speed, token_cost
from worker.bench.measure.cells import measure_cells
from worker.bench.measure.client import measure_requests
from worker.bench.measure.loading import measure_loading
from worker.bench.measure.machine import (
    buffers_of,
    needs_of,
    process_memory,
    read_per_token,
    this_machine,
)
from worker.bench.measure.server import model_server
from worker.bench.measure.vectors import measure_vectors
from worker.bench.quality.scoring import score
from worker.bench.quality.windows import MIN_WINDOW, chunk_outputs, cut, text_of
from worker.bench.sections import (
    BareSpeed,
    HttpSpeed,
    LoadTimes,
    Quality,
    Requests,
    TokenCost,
    VectorSpeed,
)
from worker.bench.sizes import SEED
from worker.bench.stages import Progress, StageFrame, StageJob, send_section
from worker.child import Parent
from worker.gguf.splits import open_header
from worker.lifecycle.buffers import asking
from worker.lifecycle.loading import load_backend
from worker.lifecycle.prepared import find_devices, memory_with, prepare
from worker.llama.adapters import adapter_key
from worker.llama.backend import LlamaBackend
from worker.llama.process import memory
from worker.llama.quantize.target import quantize
from worker.model.config import load_config
from worker.settings import Settings

_PROBE_CELLS = 512
_GLANCE = 1_000_000  # characters of a text that are counted in tokens before anything is measured
_OTHER_SEED = 1_000_000  # far from the prompts of the first pass
_BATCH_ROWS, _OTHER_BATCH_ROWS = 512, 96

# Takes the share of the job that is done, 0 to 1.
OnShare = Callable[[float], None]


def _quantise(job: StageJob, report: OnShare) -> int:
    assert job.level is not None
    assert job.level.quant is not None
    imatrix = Path(job.plan.imatrix) if job.plan.imatrix else None
    made = quantize(
        Path(job.path), Path(job.place), job.level.quant,
        threads=job.plan.threads, imatrix=imatrix, on_progress=report,
    )  # fmt: skip
    return made.file_bytes


def _probe(job: StageJob, _: OnShare) -> TokenCost:
    settings = msgspec.structs.replace(job.settings, ctx_size=_PROBE_CELLS, parallel=1)
    with open_level(job.path, settings) as backend:
        tokens = 0
        if job.plan.corpus is not None:  # a text that is too short is told before all measurements
            text = text_of(job.plan.corpus)
            glance = text[:_GLANCE]
            tokens = cut(glance, backend.vocab, MIN_WINDOW, 1).num_tokens
            tokens = -(-tokens * len(text) // len(glance))
        return token_cost(backend, tokens)


def _load(job: StageJob, report: OnShare) -> LoadTimes:
    files = [Path(file.path) for file in open_header(Path(job.path)).files]
    tick = _ticker(report, 2 * job.sizes.loads)
    return measure_loading(
        files, lambda: open_level(job.path, job.settings).close(), job.sizes.loads, tick
    )


def _speed(job: StageJob, report: OnShare) -> BareSpeed:
    config = load_config(job.path)
    free = memory_with(find_devices(job.settings))
    with asking(config) as ask:
        needs = needs_of(config, job.settings, free, ask)
    tests = (2 if job.sizes.depth else 1) * 3 + 2
    with open_level(job.path, job.settings) as backend:
        memory.use_large_pages()
        found = measure_speed(backend, job.sizes, job.settings.slots, _ticker(report, tests))
        tensors = [(tensor.name, tensor.nbytes) for tensor in open_header(Path(job.path)).tensors]
        return BareSpeed(
            rates=found.rates,
            requests=found.requests,
            threads=backend.context.threads,
            threads_batch=backend.context.threads_batch,
            read_per_token=read_per_token(config, tensors),
            memory=process_memory(),
            buffers=buffers_of(backend),
            needs=needs,
        )


def _serve(job: StageJob, report: OnShare) -> HttpSpeed:
    vocab_size = load_config(job.path).vocab_size
    seed = SEED if job.stage == stages.SERVE.name else _OTHER_SEED
    counts = sorted({1, job.settings.slots})
    requests: list[Requests] = []
    with model_server(Path(job.path), job.settings) as server:
        report(0.2)
        for streams in counts:
            requests.append(
                measure_requests(server.host, server.port, vocab_size, job.sizes, streams, seed)
            )
            seed += streams * (job.sizes.requests + 1)  # prompts that no request had before
            report(0.2 + 0.8 * len(requests) / len(counts))
        return HttpSpeed(requests=tuple(requests), memory=process_memory(server.pid))


def _vectors(job: StageJob, report: OnShare) -> VectorSpeed:
    assert job.plan.corpus is not None
    settings = msgspec.structs.replace(_with_threads(job.settings, job.plan.threads), parallel=1)
    repetitions = job.sizes.repetitions
    with open_level(job.path, settings) as backend:
        memory.use_large_pages()
        tick = _ticker(report, repetitions + 1)
        text = text_of(job.plan.corpus)
        return measure_vectors(backend, text, Path(job.place), repetitions, tick)


def _quality(job: StageJob, report: OnShare) -> Quality:
    sizes, threads, batch_rows = job.sizes, job.plan.threads, _BATCH_ROWS
    if job.stage == stages.NOISE_FLOOR.name:
        threads, batch_rows = threads // 2 or min(2, machine.usable_cpus()), _OTHER_BATCH_ROWS
    slots = max(sizes.greedy_prompts, 1)
    question = job.settings.batch_size if job.plan.own_questions else 0
    cells = max(sizes.window, question, slots * (sizes.greedy_tokens + 40)) + 256
    settings = msgspec.structs.replace(
        _with_threads(job.plan.settings, threads),
        parallel=slots,
        ctx_size=cells,
        lora=job.settings.lora,
    )
    outputs = chunk_outputs(load_config(job.path).vocab_size, sizes.window)
    with open_level(job.path, settings, outputs=outputs) as backend:
        backend.arrange(unified=True, slots=())  # a window has more tokens than a slot's own cells
        return score(backend, job, threads, batch_rows, report)


_DOERS: dict[str, Callable[[StageJob, OnShare], Any]] = {
    stages.MACHINE.name: lambda job, _: this_machine(job.plan.threads),
    stages.QUANTISE.name: _quantise,
    stages.PROBE.name: _probe,
    stages.LOAD.name: _load,
    stages.SPEED.name: _speed,
    stages.SERVE.name: _serve,
    stages.SERVE_AGAIN.name: _serve,
    stages.VECTORS.name: _vectors,
    stages.QUALITY.name: _quality,
    DECISIONS.name: ask_level,
    CELLS.name: measure_cells,
    stages.NOISE_FLOOR.name: _quality,
}


def open_level(path: str, settings: Settings, *, outputs: int = 64) -> LlamaBackend:
    """A file as the service opens it, computing with the adapters of the settings.

    Raises WorkerError; DoesNotFitError before anything loads.
    """
    file = Path(path)
    prepared = prepare(file, settings)
    backend = load_backend(file, settings, prepared, chunk_outputs=outputs)
    backend.batch.key = adapter_key((each.digest, each.scale) for each in prepared.adapters)
    return backend


def _with_threads(settings: Settings, threads: int) -> Settings:
    """Settings with a fixed number of threads, so that none is chosen by trying."""
    return msgspec.structs.replace(settings, threads=threads, threads_batch=threads)


def _ticker(report: OnShare, count: int) -> Callable[[], None]:
    """A function that reports one of `count` parts at each call."""
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        report(min(1.0, done / count))

    return tick


def main() -> None:
    """Do the job that is sent."""
    parent = Parent()
    log.configure("console", "error")
    asked = parent.receive()
    if asked is None:
        return
    parent.leave_with()  # nobody would read the section

    def send(frame: StageFrame) -> None:
        parent.send(msgspec.json.encode(frame))

    job = msgspec.json.decode(asked, type=StageJob)
    do = _DOERS[job.stage]
    send_section(send, lambda: do(job, lambda share: send(Progress(share=share))))


if __name__ == "__main__":
    main()
