"""How far a tensor's outputs move when it is stored in an encoding.

A weight W [rows, columns] with inputs x gives W x. Stored in an encoding it is W + D, and the mean
squared error of its outputs over a text is

    e(W, encoding) = Σ_r E[(Σ_c D_rc x_c)²]  ≈  Σ_r Σ_c E[x_c²] D_rc²

if the errors of a row's columns are unrelated, as those of rounding are. E[x_c²] is the importance
matrix. llama.cpp's quantizer minimises the same sum within a block, and the second-order method
"Optimal Brain Surgeon" (Hassibi and Stork 1993), of which GPTQ (Frantar et al. 2022) is the form
for layers, has E[x xᵀ] where this has its diagonal.

Experts lie in one tensor and share its encoding. Each has the importance of the tokens that went
to it, and its error comes about as often as they do: the sum over experts is weighted by their
shares of the tokens.

The divergence of the model from itself, small as it is, is quadratic in the outputs' errors: what
a tensor adds is s(W) e(W, encoding). The factor s(W) is measured (`probes.py`), for several tensors
of one kind at once. It is the more alike among them if the error has the unit

    e(W, encoding) / √(Σ_r Σ_c E[x_c²] W_rc²)

between the absolute error and the relative one: activations grow from layer to layer, and so does
what later layers bear.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.bench.fit.estimate import KINDS
from worker.bench.fit.jobs import RoundingSpeedJob, WeighJob
from worker.gguf.header import Header, TensorInfo
from worker.gguf.imatrix import Importance, read_imatrix
from worker.gguf.quant import ENCODINGS
from worker.gguf.splits import open_header
from worker.llama.rounding import NUMBERS, FloatRows, decode, round_rows

_SAMPLE = 32, 1024  # rows and columns for the speed


def rounding_seconds(job: RoundingSpeedJob) -> float:
    """Seconds that a weight takes, as a mean over the encodings; the threads share the work."""
    rows = np.random.default_rng(0).standard_normal(_SAMPLE, np.float32)
    columns = np.ones(_SAMPLE[1], np.float32)
    numbers = [NUMBERS[name] for name in KINDS]
    for number in numbers:  # ggml makes its tables once
        round_rows(number, rows[:1], columns)

    def one(number: int) -> None:
        round_rows(number, rows, columns)

    with ThreadPoolExecutor(job.threads) as pool:
        begun = time.monotonic()
        list(pool.map(one, numbers * job.threads))
    return (time.monotonic() - begun) / (rows.size * len(numbers) * job.threads)


def weigh(job: WeighJob, report: Callable[[float], None]) -> dict[str, dict[str, float]]:
    """Tensor -> encoding -> its error, estimated from evenly spaced rows."""
    header, importance = open_header(Path(job.path)), read_imatrix(job.imatrix)
    tensors = [tensor for tensor in header.tensors if tensor.name in job.candidates]
    done, found = 0, dict[str, dict[str, float]]()
    one = functools.partial(_weigh, header, importance, job)
    with ThreadPoolExecutor(job.threads) as pool:
        for tensor, errors in zip(tensors, pool.map(one, tensors), strict=True):
            found[tensor.name] = errors
            done += 1
            report(done / len(tensors))
    return found


def _weigh(
    header: Header, importance: Importance, job: WeighJob, tensor: TensorInfo
) -> dict[str, float]:
    errors, outputs = dict.fromkeys(job.candidates[tensor.name], 0.0), 0.0
    _, height, experts = (*tensor.shape, 1, 1)[:3]
    wanted = max(1, min(height, job.rows // experts))
    chosen = np.arange(wanted) * height // wanted
    shares = importance.shares.get(tensor.name, np.empty(0))
    if shares.size != experts:
        shares = np.ones(experts)
    for expert in np.flatnonzero(shares).tolist():
        share = float(shares[expert])
        columns = columns_of(importance, tensor, expert)
        rows = rows_of(header, tensor, expert * height + chosen)
        outputs += share * _weighted_sum(rows, columns)
        for name in errors:
            rounded = round_rows(NUMBERS[name], rows, columns)
            errors[name] += share * _weighted_sum(rows - rounded, columns)
    unit = math.sqrt(outputs * wanted / height) or 1.0
    return {name: error / unit for name, error in errors.items()}


def _weighted_sum(rows: FloatRows, columns: FloatRows | None) -> float:
    """The sum of squares, each times the importance of its column."""
    squares = np.square(rows, dtype=np.float64).sum(axis=0)
    return float(squares.sum() if columns is None else squares @ columns)


def columns_of(importance: Importance, tensor: TensorInfo, expert: int) -> FloatRows | None:
    """The importance of the columns of one expert, or of the only matrix."""
    values = importance.entries.get(tensor.name)
    if values is None:
        return None
    parts = values.reshape(-1, tensor.shape[0])
    return np.ascontiguousarray(parts[expert if len(parts) > 1 else 0])


def rows_of(header: Header, tensor: TensorInfo, rows: NDArray[np.integer[Any]]) -> FloatRows:
    """FloatRows of a tensor as floats."""
    data = stored_rows(header, tensor)[rows]
    return np.ascontiguousarray(decode(tensor.type, data.reshape(-1), tensor.shape[0]))


def stored_rows(header: Header, tensor: TensorInfo) -> NDArray[np.uint8]:
    """A tensor's bytes in its file, [rows, bytes]."""
    encoding = ENCODINGS[tensor.type]
    width = tensor.shape[0] // encoding.block * encoding.nbytes
    path = header.files[tensor.file].path
    data = np.memmap(path, np.uint8, "r", tensor.offset, (tensor.nbytes,))
    return data.reshape(-1, width)
