"""Rows of logits: computed window by window, turned into log-probabilities."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from worker.bench.corpus import Windows
from worker.llama.backend import LlamaBackend

Logits = NDArray[np.float32]
Floats = NDArray[np.float64]
Ids = NDArray[np.int32]

# Logits of a batch are held twice, in llama.cpp's output buffer and in its compute buffer.
_OUTPUT_BYTES = 128 << 20
MIN_OUTPUTS = 64
BLOCK = 1 << 22  # logits worked on at once


def chunk_outputs(vocab_size: int, wanted: int) -> int:
    """Rows of logits that one batch may have."""
    return max(MIN_OUTPUTS, min(wanted, _OUTPUT_BYTES // (4 * vocab_size)))


def logits_of(
    backend: LlamaBackend, windows: Windows, batch_rows: int
) -> Generator[tuple[Logits, Ids]]:
    """For each window its scored rows, float32 [n, vocab], and the tokens they predict, [n].

    batch_rows: the most tokens computed at once. llama.cpp's kernels round differently for other
    batch shapes, so levels are compared with the same value.
    """
    width = windows.tokens.shape[1]
    for tokens in windows.tokens:
        backend.drop(0)
        logits = np.empty((windows.num_scored, backend.vocab_size), np.float32)
        start = 0
        while start < width:
            stop = _stop(start, windows.first, batch_rows, backend)
            stop = min(stop, width)
            _compute(backend, tokens, start, stop, windows.first, logits)
            start = stop
        yield logits, tokens[windows.first + 1 :]


def _stop(start: int, first: int, batch_rows: int, backend: LlamaBackend) -> int:
    """Where the batch that begins at `start` ends: by its rows and by its outputs."""
    outputs = max(start, first) + backend.max_outputs
    return min(start + min(batch_rows, backend.batch.capacity), outputs)


def _compute(
    backend: LlamaBackend, tokens: Ids, start: int, stop: int, first: int, logits: Logits
) -> None:
    """Compute tokens start to stop; the logits of scored positions go where they belong."""
    batch = backend.batch
    batch.clear()
    batch.add(tokens[start:stop], start, 0)
    wanted = range(max(start, first), min(stop, len(tokens) - 1))
    for position in wanted:
        batch.outputs[position - start] = 1
    backend.decode()
    for position in wanted:
        logits[position - first] = backend.logits(position - start)


def log_sums(logits: Logits) -> Floats:
    """ln Σ e^z of each row of [n, vocab], float64 [n].

    The largest logit is taken out first; then single precision loses below 1e-6, because what is
    far from the largest counts for little and what is near it is subtracted exactly.
    """
    largest = logits.max(axis=1)
    sums = np.empty(len(logits), np.float64)
    step = max(1, BLOCK // logits.shape[1])
    for at in range(0, len(logits), step):
        part = np.exp(logits[at : at + step] - largest[at : at + step, None])
        sums[at : at + step] = part.sum(axis=1, dtype=np.float64)
    return largest.astype(np.float64) + np.log(sums)


def gathered(logits: Logits, sums: Floats, ids: Ids) -> Floats:
    """ln p of chosen tokens: `ids` [n, k] of each row, float64 [n, k]."""
    return np.take_along_axis(logits, ids, axis=1).astype(np.float64) - sums[:, None]
