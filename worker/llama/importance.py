"""Sums of squared activations: how much each input column of a weight matters for a text.

What is summed, and for which weights, is as in llama.cpp's tools/imatrix, so that the file is
that of llama-imatrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.errors import BackendError
from worker.gguf.imatrix import Sums
from worker.llama.graph import (
    F32,
    MUL_MAT,
    MUL_MAT_ID,
    Callback,
    name_of,
    op_of,
    tensor_at,
    values_of,
)

_FEWEST_ROWS = 16  # in a batch with fewer rows a multiplication does not count
_OUTPUT = ("output.weight", "token_embd.weight")


class Collector:
    """Sums over chunks of text. `add_chunk` closes a chunk, so that a failure or an end amid one
    leaves the sums of whole chunks.

    with_output  also for the output matrix, the token embedding where the two are one
    """

    def __init__(self, *, with_output: bool) -> None:
        self.sums: dict[str, Sums] = {}
        self._chunk: dict[str, Sums] = {}
        self._with_output = with_output
        # Weights with the same input follow each other: its squares are summed once.
        self._input, self._squares = 0, np.empty(0)
        self._seen: set[str] = set()
        self.callback = Callback(self._wants, self._take)

    def add_chunk(self) -> None:
        """Count what was computed since the last chunk. Raises BackendError."""
        self.callback.check()
        for name, sums in self._chunk.items():
            self.sums[name] = self.sums[name] + sums if name in self.sums else sums
        self._chunk.clear()
        self._forget_input()

    def _forget_input(self) -> None:
        self._input = 0
        self._seen.clear()

    def _wants(self, node: int) -> bool:
        op = op_of(node)
        if op == MUL_MAT_ID:
            return True
        if op != MUL_MAT:
            return False
        weight, rows = map(tensor_at, tensor_at(node).src[:2])
        if rows.ne[1] < _FEWEST_ROWS or rows.type != F32:
            return False
        name = name_of(weight)
        return name.startswith("blk.") or (self._with_output and name in _OUTPUT)

    def _take(self, node: int) -> None:
        tensor = tensor_at(node)
        weight = tensor_at(tensor.src[0])
        name = name_of(weight)
        if name in self._seen:  # another batch: addresses are used again
            self._forget_input()
        self._seen.add(name)
        if tensor.op == MUL_MAT_ID:
            found = _experts(weight, values_of(tensor.src[1], np.float32), tensor.src[2])
        else:
            found = self._matrix(weight, tensor.src[1])
        if not np.isfinite(found.sums).all():
            raise BackendError(
                f"The inputs of {name} are no finite numbers, so they say nothing of its columns.",
                hint="Check the file with `worker check --deep`.",
                code="NOT_FINITE",
            )
        known = self._chunk.get(name)
        self._chunk[name] = found if known is None else known + found

    def _matrix(self, weight: Any, source: int) -> Sums:
        matrices = weight.ne[2] * weight.ne[3]
        shape = tensor_at(source).ne
        count = shape[1] * shape[2] * shape[3] // matrices
        if matrices == 1:
            if source != self._input:
                rows = values_of(source, np.float32).reshape(-1, shape[0])
                self._input, self._squares = source, np.einsum("rc,rc->c", rows, rows)
            return Sums(self._squares[None].astype(np.float64), np.array([count], np.int64))
        values = values_of(source, np.float32)
        sums = np.zeros((matrices, shape[0]))
        for i3, outer in enumerate(values):
            for i2, rows in enumerate(outer):
                place = i3 % weight.ne[3] * weight.ne[2] + i2 % weight.ne[2]
                sums[place] += np.einsum("rc,rc->c", rows, rows)
        return Sums(sums.reshape(1, -1), np.array([count], np.int64))


def _experts(weight: Any, values: np.ndarray, ids: int) -> Sums:
    """Rows go to the experts that `ids` [tokens, used] names for them.

    values: [1, tokens, used or 1, columns]
    """
    chosen: NDArray[np.int32] = values_of(ids, np.int32)[0, 0]
    tokens, slots = np.divmod(np.arange(chosen.size), chosen.shape[1])
    experts: NDArray[np.int32] = chosen.reshape(-1)
    order = np.argsort(experts, kind="stable")
    rows = values[0][tokens[order], slots[order] % values.shape[2]]
    counts = np.bincount(experts, minlength=weight.ne[2]).astype(np.int64)
    sums = np.zeros((weight.ne[2], values.shape[3]))
    begin = 0
    for expert in np.flatnonzero(counts):
        part = rows[begin : begin + counts[expert]]
        sums[expert] = np.einsum("rc,rc->c", part, part)
        begin += counts[expert]
    return Sums(sums, counts)
