"""A file's divergence from a reference, on text that nothing was chosen by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from worker.bench.fit.jobs import MixScoreJob
from worker.bench.quality.reference import ReferenceRows, condense, shape_of
from worker.bench.quality.scoring import WindowScores, compare, summarise
from worker.bench.quality.windows import chunk_outputs, cut, logits_of
from worker.bench.sections import Divergence
from worker.lifecycle.loading import load_backend
from worker.lifecycle.prepared import prepare
from worker.model.config import load_config


def score_file(job: MixScoreJob, report: Callable[[float], None]) -> Divergence:
    """Compare with the rows at `place`, or write them."""
    path = Path(job.path)
    settings = msgspec.structs.replace(
        job.settings, parallel=1, ctx_size=job.window, draft="none", batch_size=job.window,
        ubatch_size=job.window,
    )  # fmt: skip
    outputs = chunk_outputs(load_config(path).vocab_size, job.window)
    prepared, found = prepare(path, settings, sees=False), list[WindowScores]()
    with load_backend(path, settings, prepared, chunk_outputs=outputs) as backend:
        windows = cut(job.text, backend.vocab, job.window, job.windows)
        if job.writes:
            shape = shape_of(len(windows.tokens) * windows.num_scored, backend.vocab_size)
            rows = ReferenceRows.create(Path(job.place), windows, shape)
        else:
            rows = ReferenceRows(Path(job.place))
        for index, (logits, targets) in enumerate(logits_of(backend, windows, job.window)):
            if job.writes:
                rows.write(index, condense(logits, targets, rows.shape, seed=index))
            found.append(compare(logits, targets, rows.read(index)))
            report((index + 1) / len(windows.tokens))
        return summarise(found, windows.tokens.shape[1])
