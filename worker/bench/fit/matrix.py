"""An importance matrix of a model, chunk by chunk.

As llama.cpp's tools/imatrix does it: the text is tokenised as a whole and cut into chunks, each
computed by itself with BOS in the place of its first token, where the model wants one.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from worker.bench.figures import Ids
from worker.bench.fit.jobs import FEWEST_CHUNKS, MatrixJob, MatrixMade
from worker.bench.fit.model import open_observed
from worker.bench.quality.windows import chunk_outputs
from worker.errors import ModelFileError, UsageError, quantity
from worker.files import atomic_write
from worker.gguf.header import Header
from worker.gguf.imatrix import Collected, read_collected, write_imatrix
from worker.llama.backend import LlamaBackend
from worker.llama.importance import Collector
from worker.llama.vocab import Vocab
from worker.model.config import load_config

_SAVE_S = 30.0


def make_matrix(
    job: MatrixJob, report: Callable[[float], None], is_told_to_stop: Callable[[], bool]
) -> MatrixMade:
    """Write the matrix; also when told to stop, if there is a chunk. Raises UsageError."""
    config = load_config(job.path, purpose="serve")
    rows = job.chunk if config.only_embeds else chunk_outputs(config.vocab_size, job.chunk)
    collector = Collector(with_output=job.with_output)
    with open_observed(
        Path(job.path), job.settings, job.chunk, rows, collector.callback
    ) as backend:
        collector.add_chunk()  # what the warm-up computed
        collector.sums.clear()
        chunks = cut_chunks(job.texts, backend.vocab, job.chunk)[: job.chunks]
        known = _earlier(job)
        begun = done = min(known.chunks, len(chunks)) if known else 0
        if known:
            collector.sums = dict(known.sums)
        report(begun / len(chunks))
        clock = saved = time.monotonic()
        end = math.inf if job.seconds is None else clock + job.seconds
        for done in range(begun, len(chunks)):
            is_late = done >= FEWEST_CHUNKS and time.monotonic() > end
            if is_late or is_told_to_stop():
                break
            compute_chunk(backend, chunks[done])
            collector.add_chunk()
            report((done + 1) / len(chunks))
            if time.monotonic() - saved > _SAVE_S:
                _save(job, collector, done + 1)
                saved = time.monotonic()
        else:
            done = len(chunks)
    if done > begun:
        _save(job, collector, done)
    return MatrixMade(
        chunks=done,
        wanted=len(chunks),
        chunk=job.chunk,
        begun=begun,
        seconds=time.monotonic() - clock,
        rare=_collection(job, collector, done).rare_experts,
    )


def origin_of(header: Header, asked: str) -> str:
    """Names the model's files as they are, and what is computed of them: an unfinished matrix is
    continued if this is the same."""
    told = [(file.size, file.identity.mtime_ns) for file in header.files], asked
    return hashlib.sha256(repr(told).encode()).hexdigest()


def _earlier(job: MatrixJob) -> Collected | None:
    """What an earlier run of the same origin left."""
    try:
        known = read_collected(Path(job.target))
    except ModelFileError:
        return None
    return known if known.origin == job.origin else None


def _collection(job: MatrixJob, collector: Collector, chunks: int) -> Collected:
    return Collected(
        sums=collector.sums,
        dataset=job.dataset,
        chunks=chunks,
        chunk_size=job.chunk,
        origin=job.origin,
    )


def _save(job: MatrixJob, collector: Collector, chunks: int) -> None:
    with atomic_write(Path(os.fspath(job.target))) as partial:
        write_imatrix(partial, _collection(job, collector, chunks))


def cut_chunks(texts: tuple[str, ...], vocab: Vocab, width: int) -> Ids:
    """Whole chunks of each text, int32 [chunks, width]. Raises UsageError where there is none."""
    found: list[Ids] = []
    most = 0
    for text in texts:
        ids = np.array(vocab.tokenize(text, add_special=True, parse_special=False), np.int32)
        most = max(most, len(ids))
        found.append(ids[: len(ids) // width * width].reshape(-1, width))
    chunks = np.concatenate(found)
    if not len(chunks):
        raise UsageError(
            f"The text has {quantity(most, 'token')}, too few for a chunk of {width}.",
            hint="Pass a longer --text. `worker imatrix` also has smaller chunks, --chunk.",
        )
    if vocab.adds_bos and vocab.bos is not None:
        chunks[:, 0] = vocab.bos
    return chunks


def compute_chunk(backend: LlamaBackend, tokens: Ids) -> None:
    """Compute all rows with their outputs, so that no layer leaves any out."""
    context = backend.context
    backend.drop(0)
    step = min(context.batch.capacity, context.batch.max_outputs)
    for start in range(0, len(tokens), step):
        part = tokens[start : start + step]
        context.batch.clear()
        context.batch.add(part, start, 0)
        context.batch.outputs[: len(part)] = 1
        context.decode()
