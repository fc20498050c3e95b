"""What a tensor's error does to the model: the divergence of a model in which some tensors are
coarse, or all. They are exchanged in memory, so a probe takes no file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np

from worker.bench.fit.harm import columns_of, stored_rows
from worker.bench.fit.jobs import ProbeJob
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
_FIRST = 32  # tokens of a window that are context alone; probes share them, so more are not needed
# A reference's rows are kept in part: probes are compared with each other, on the same part.
_HEAD, _DRAWN = 2048, 64


def probe(job: ProbeJob, report: Callable[[float], None]) -> list[float]:
    """Each group's divergence, in nats. Raises BackendError."""
    header, importance = open_header(Path(job.path)), read_imatrix(job.imatrix)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    finder, found = WeightFinder(), list[float]()
    vocab_rows = chunk_outputs(int(_vocab_size(header)), job.window)
    path = Path(job.path)
    with open_observed(path, job.settings, job.window, vocab_rows, finder.callback) as backend:
        windows = cut(job.text, backend.vocab, job.window, job.windows)
        windows = msgspec.structs.replace(windows, first=min(_FIRST, windows.first))
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

        now = dict[str, str]()  # tensors that are not as in the file
        with ThreadPoolExecutor(job.threads) as pool:
            swap = functools.partial(exchange, pool, job.threads, finder, header, importance)
            for group in job.groups:
                if missing := [name for name in group if name not in finder.places]:
                    raise BackendError(f"llama.cpp does not compute with {missing[0]}.")
                for name in now.keys() - group.keys():
                    restore(finder, header, tensors[name])
                for name, kind in group.items():
                    if now.get(name) != kind:
                        swap(tensors[name], NUMBERS[kind])
                now = group
                found.append(divergence())
                report(len(found) / len(job.groups))
    return found


def _vocab_size(header: Header) -> int:
    tensor = next(each for each in header.tensors if each.name == "token_embd.weight")
    return tensor.shape[1]


def exchange(
    pool: ThreadPoolExecutor,
    threads: int,
    finder: WeightFinder,
    header: Header,
    importance: Importance,
    tensor: TensorInfo,
    number: int,
) -> None:
    """Give the loaded tensor what rounding makes of it."""
    stored, columns, height = stored_rows(header, tensor), tensor.shape[0], tensor.shape[1]
    step = max(1, _BLOCK // threads // columns)

    def one(begin: int) -> None:
        # A block has rows of one expert.
        end = min(begin + step, begin - begin % height + height, len(stored))
        weights = columns_of(importance, tensor, begin // height)
        rows = decode(tensor.type, np.array(stored[begin:end]).reshape(-1), columns)
        rows = np.ascontiguousarray(rows)
        rounded = decode(number, encode(number, rows, weights), columns)
        finder.write(tensor.name, encode(tensor.type, rounded, None), begin * stored.shape[1])

    begins = (
        begin
        for first in range(0, len(stored), height)
        for begin in range(first, first + height, step)
    )
    list(pool.map(one, begins))  # raises what failed


def restore(finder: WeightFinder, header: Header, tensor: TensorInfo) -> None:
    """Give it what the file has."""
    stored = stored_rows(header, tensor)
    step = max(1, 4 * _BLOCK // stored.shape[1])
    for start in range(0, len(stored), step):
        data = np.array(stored[start : start + step])
        finder.write(tensor.name, data, start * stored.shape[1])
