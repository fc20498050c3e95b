"""What a tensor's error does to the model: the divergence of a model in which only some tensors
are coarse. They are exchanged in memory, so a probe takes no file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from worker.bench.fit.harm import columns_of, stored_rows
from worker.bench.fit.jobs import ProbeJob, ProbeMade
from worker.bench.fit.model import open_observed
from worker.bench.quality.reference import RowShape, condense
from worker.bench.quality.scoring import compare
from worker.bench.quality.windows import chunk_outputs, cut, logits_of
from worker.errors import BackendError
from worker.gguf.header import Header, TensorInfo
from worker.gguf.imatrix import Importance, read_imatrix
from worker.gguf.splits import open_header
from worker.llama.graph import WeightFinder
from worker.llama.rounding import NUMBERS, decode, encode

_BLOCK = 1 << 22  # numbers of a tensor that are exchanged at once
# A reference's rows are kept in part: probes are compared with each other, on the same part.
_HEAD, _DRAWN = 2048, 64


def probe(job: ProbeJob, report: Callable[[float], None]) -> list[ProbeMade]:
    """Each group's divergence and error. Raises BackendError."""
    header, importance = open_header(Path(job.path)), read_imatrix(job.imatrix)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    finder, found = WeightFinder(), list[ProbeMade]()
    vocab_rows = chunk_outputs(int(_vocab_size(header)), job.window)
    path = Path(job.path)
    with open_observed(path, job.settings, job.window, vocab_rows, finder.callback) as backend:
        windows = cut(job.text, backend.vocab, job.window, job.windows)
        size = backend.vocab_size
        shape = (
            RowShape(head=size, drawn=0) if size <= _HEAD else RowShape(head=_HEAD, drawn=_DRAWN)
        )
        references = [
            condense(logits, targets, shape, seed=index)
            for index, (logits, targets) in enumerate(logits_of(backend, windows, vocab_rows))
        ]
        finder.callback.check()
        finder.stop()

        def divergence() -> float:
            scores = [
                compare(logits, targets, block).kld
                for (logits, targets), block in zip(
                    logits_of(backend, windows, vocab_rows), references, strict=True
                )
            ]
            return float(np.concatenate(scores).mean())

        for group in job.groups:
            if missing := [name for name in group if name not in finder.places]:
                raise BackendError(f"llama.cpp does not compute with {missing[0]}.")
            error = sum(
                exchange(finder, header, tensors[name], importance, NUMBERS[encoding])
                for name, encoding in group.items()
            )
            found.append(ProbeMade(divergence(), error))
            for name in group:
                restore(finder, header, tensors[name])
            report(len(found) / len(job.groups))
    return found


def _vocab_size(header: Header) -> int:
    tensor = next(each for each in header.tensors if each.name == "token_embd.weight")
    return tensor.shape[1]


def exchange(
    finder: WeightFinder, header: Header, tensor: TensorInfo, importance: Importance, number: int
) -> float:
    """Give the loaded tensor what rounding makes of it; returns its error."""
    stored, columns = stored_rows(header, tensor), tensor.shape[0]
    step, error = max(1, _BLOCK // columns), 0.0
    for start in range(0, len(stored), step):
        # A block has rows of one expert.
        stop = min(start + step, len(stored), start - start % tensor.shape[1] + tensor.shape[1])
        for begin, end in ((start, stop), (stop, min(start + step, len(stored)))):
            if begin == end:
                continue
            weights = columns_of(importance, tensor, begin // tensor.shape[1])
            rows = decode(tensor.type, np.array(stored[begin:end]).reshape(-1), columns)
            rows = np.ascontiguousarray(rows)
            rounded = decode(number, encode(number, rows, weights), columns)
            squares = np.square(rows - rounded, dtype=np.float64).sum(axis=0)
            error += float(squares.sum() if weights is None else squares @ weights)
            data = encode(tensor.type, rounded, None)
            finder.write(tensor.name, data, begin * stored.shape[1])
    return error


def restore(finder: WeightFinder, header: Header, tensor: TensorInfo) -> None:
    """Give it what the file has."""
    stored = stored_rows(header, tensor)
    step = max(1, 4 * _BLOCK // stored.shape[1])
    for start in range(0, len(stored), step):
        data = np.array(stored[start : start + step])
        finder.write(tensor.name, data, start * stored.shape[1])
