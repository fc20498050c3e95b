"""The stage that measures a file with one type of cells, on long windows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from worker.bench.cells.needles import haystack, needles_found
from worker.bench.cells.scores import CellsScores
from worker.bench.quality.answers import choose
from worker.bench.quality.questions import questions_of
from worker.bench.quality.reference import ReferenceRows, condense, shape_of
from worker.bench.quality.scoring import WindowScores, compare, summarise
from worker.bench.quality.windows import Windows, chunk_outputs, compute, cut, logits_of, text_of
from worker.bench.stages import StageJob
from worker.errors import BackendError
from worker.lifecycle.buffers import asking
from worker.lifecycle.loading import load_backend
from worker.lifecycle.prepared import prepare
from worker.llama.backend import LlamaBackend
from worker.memory.contexts import cell_bytes
from worker.model.config import load_config

_SCORED, _STEP, _MORE_CELLS = 512, 512, 256
_WRITTEN = 24  # tokens that are timed one by one behind a window
_HAYSTACKS = 3


def measure_cells(job: StageJob, report: Callable[[float], None]) -> CellsScores:
    """Score the end of each window, ask the questions and look for needles."""
    assert job.plan.corpus is not None
    path, sizes, threads = Path(job.path), job.sizes, job.plan.threads
    settings = msgspec.structs.replace(
        job.settings,
        parallel=1,
        ctx_size=sizes.window + _MORE_CELLS,
        threads=threads,
        threads_batch=threads,
    )
    outputs = chunk_outputs(load_config(path).vocab_size, _SCORED)
    prepared = prepare(path, settings, sees=False)
    with asking(prepared.config) as ask:
        nbytes = cell_bytes(ask, settings)
    with load_backend(path, settings, prepared, chunk_outputs=outputs) as backend:
        text = text_of(job.plan.corpus)
        windows = cut(text, backend.vocab, sizes.window, sizes.windows, fewest=1)
        width = windows.tokens.shape[1]
        windows = msgspec.structs.replace(windows, first=width - min(_SCORED, width // 2) - 1)
        folder = Path(job.place)
        if job.writes:
            shape = shape_of(len(windows.tokens) * windows.num_scored, backend.vocab_size)
            rows = ReferenceRows.create(folder, windows, shape)
        else:
            rows = ReferenceRows(folder)
        found, begun = list[WindowScores](), time.monotonic()
        reading = 0.0
        for index, (logits, targets) in enumerate(logits_of(backend, windows, _STEP)):
            reading += time.monotonic() - begun
            if not np.isfinite(logits).all():
                raise BackendError("It computes values that are no numbers.", code="NOT_FINITE")
            if job.writes:
                rows.write(index, condense(logits, targets, rows.shape, seed=index))
            found.append(compare(logits, targets, rows.read(index)))
            report(0.7 * (index + 1) / len(windows.tokens))
            begun = time.monotonic()
        return CellsScores(
            bytes_per_cell=nbytes,
            divergence=summarise(found, width),
            write_per_s=_writing(backend, windows),
            choices=choose(backend, questions_of(job.plan, sizes.questions)),
            needles=_needles(backend, windows),
            read_per_s=windows.tokens.size / reading,
        )


def _writing(backend: LlamaBackend, windows: Windows) -> float:
    """Tokens a second behind the last window, which the cells hold."""
    start, token = windows.tokens.shape[1], int(windows.tokens[-1][-1])
    begun = time.monotonic()
    for step in range(_WRITTEN):
        token = int(compute(backend, np.array([token], np.int32), start + step, [0]).argmax())
    return _WRITTEN / (time.monotonic() - begun)


def _needles(backend: LlamaBackend, windows: Windows) -> list[bool]:
    found: list[bool] = []
    for number, tokens in enumerate(windows.tokens[:_HAYSTACKS]):
        room = len(tokens) // 16  # for the needles and questions
        hay = haystack(tokens[: len(tokens) - room], backend.vocab, number)
        some = needles_found(backend, hay, _STEP)
        if some is None:
            return []
        found += some
    return found
