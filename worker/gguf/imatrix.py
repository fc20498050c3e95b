"""Importance matrices: how much each input column of a weight mattered over a calibration text.

llama-imatrix writes them as GGUF (tensors `NAME.in_sum2` and `NAME.counts`); before 2025 it wrote
a format of its own without a magic. The layout and the averaging are those of llama.cpp's
`common/imatrix-loader.cpp` and `tools/quantize/quantize.cpp`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from worker.errors import ModelFileError
from worker.gguf.fields import Fields
from worker.gguf.header import Header, TensorInfo, refuse
from worker.gguf.quant import ENCODINGS
from worker.gguf.reader import MAGIC, read_header
from worker.gguf.strings import StringArray

Values = NDArray[np.float32]

_SUMS, _COUNTS = ".in_sum2", ".counts"
_DATASETS, _CHUNKS = "imatrix.datasets", "imatrix.chunk_count"
_CHUNK_SIZE = "imatrix.chunk_size"
# Ours: of what it was computed, so that a run that was ended can go on.
_ORIGIN = "worker.imatrix.origin"
_AGAIN = "Make it with `worker imatrix`, or get it again."
_MAX_ENTRIES = 65_536
_MAX_TEXT = 4096


class Importance(msgspec.Struct, frozen=True, kw_only=True):
    """A matrix as it was read.

    entries  tensor name -> one float for each input column; the rows of experts follow each other
    shares   tensor with experts -> the share of the rows that each expert got; where it is known
    dataset  name of the first calibration text, or empty
    chunks   pieces of text that it was computed on; 0 where the file does not say
    """

    entries: dict[str, Values]
    dataset: str
    chunks: int
    shares: dict[str, Values] = {}

    @property
    def rare_experts(self) -> dict[str, list[int]]:
        """Weight -> its experts that got less than a tenth of an even share of the tokens."""
        return _rare(self.shares)


class Sums(NamedTuple):
    """Of one weight, as they are collected.

    sums    of squares, float64 [matrices, columns]
    counts  rows that were summed, int64 [matrices]; [1] for all matrices together
    """

    sums: NDArray[np.float64]
    counts: NDArray[np.int64]

    def __add__(self, other: Sums) -> Sums:  # type: ignore[override]
        return Sums(self.sums + other.sums, self.counts + other.counts)


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What was collected so far.

    origin  names the model, the text and the size of chunks
    """

    sums: dict[str, Sums]
    dataset: str
    chunks: int
    chunk_size: int
    origin: str

    @property
    def rare_experts(self) -> dict[str, list[int]]:
        """Weight -> its experts that got less than a tenth of an even share of the tokens."""
        return _rare({name: each.counts for name, each in self.sums.items()})


def _rare(counts: Mapping[str, NDArray[Any]]) -> dict[str, list[int]]:
    found = {
        name: np.flatnonzero(10 * each < each.mean()).tolist()
        for name, each in counts.items()
        if each.size > 1
    }
    return {name: experts for name, experts in found.items() if experts}


def write_imatrix(path: Path, collected: Collected) -> None:
    """Write it as llama-imatrix does."""
    import gguf  # which takes longer to import than all else here

    writer = gguf.GGUFWriter(path, "")
    # llama-imatrix names no architecture.
    for keys in writer.kv_data:
        keys.pop("general.architecture", None)
    writer.add_string("general.type", "imatrix")
    writer.add_array(_DATASETS, [collected.dataset])
    writer.add_uint32(_CHUNKS, collected.chunks)
    writer.add_uint32(_CHUNK_SIZE, collected.chunk_size)
    writer.add_string(_ORIGIN, collected.origin)
    for name, each in sorted(collected.sums.items()):
        writer.add_tensor(name + _SUMS, each.sums.astype(np.float32))
        writer.add_tensor(name + _COUNTS, each.counts.astype(np.float32)[:, None])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_collected(path: Path) -> Collected:
    """What `write_imatrix` wrote. Raises ModelFileError; of another program `origin` is empty."""
    header = read_header(path)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    sums: dict[str, Sums] = {}
    for name, tensor in tensors.items():
        if name.endswith(_SUMS) and (other := tensors.get(name.removesuffix(_SUMS) + _COUNTS)):
            counts = np.rint(_floats(header, other)).astype(np.int64)
            values = _floats(header, tensor).astype(np.float64).reshape(counts.size, -1)
            sums[name.removesuffix(_SUMS)] = Sums(values, counts)
    fields, origin = Fields(header, ""), header.keys.get(_ORIGIN)
    return Collected(
        sums=sums,
        dataset="",
        chunks=fields.count(_CHUNKS) or 0,
        chunk_size=fields.count(_CHUNK_SIZE) or 0,
        origin=origin if isinstance(origin, str) else "",
    )


def read_imatrix(path: str | os.PathLike[str]) -> Importance:
    """The averaged importance of each tensor. Raises ModelFileError for any other file."""
    name = os.fspath(path)
    try:
        with Path(name).open("rb") as file:
            is_gguf = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise refuse(
            "UNREADABLE",
            f"The importance matrix {name} cannot be read: {error.strerror}.",
            hint="Name a file that `worker imatrix` or llama-imatrix wrote.",
        ) from error
    found = _from_gguf(read_header(name)) if is_gguf else _from_legacy(Path(name))
    for tensor, values in (*found.entries.items(), *found.shares.items()):
        if not np.isfinite(values).all():
            raise _bad(name, f"has a value for {tensor} that is no finite number", tensor)
    return found


def _from_gguf(header: Header) -> Importance:
    tensors = {tensor.name: tensor for tensor in header.tensors}
    entries, shares = dict[str, Values](), dict[str, Values]()
    for name, tensor in tensors.items():
        if not name.endswith(_SUMS):
            continue
        stem = name.removesuffix(_SUMS)
        counts = tensors.get(stem + _COUNTS)
        if counts is None:
            raise _bad(header.path, f"has no counts for {stem}", stem)
        sums, numbers = _floats(header, tensor), _floats(header, counts)
        if sums.size % numbers.size:
            raise _bad(
                header.path, f"has {sums.size} sums for {numbers.size} counts of {stem}", stem
            )
        # For an expert that saw no token all columns are equally important.
        rows, times = sums.reshape(numbers.size, -1), np.rint(numbers)[:, None]
        mean = np.divide(rows, times, out=np.ones_like(rows), where=times > 0)
        entries[stem] = np.ascontiguousarray(mean.reshape(-1))
        seen = np.maximum(times[:, 0], 0)
        if seen.size > 1 and seen.any():
            shares[stem] = seen / seen.sum()
    if not entries:
        raise _bad(header.path, "holds no importance of any tensor", None)
    fields = Fields(header, "")
    datasets = header.keys.get(_DATASETS)
    return Importance(
        entries=entries,
        dataset=datasets[0] if isinstance(datasets, StringArray) and len(datasets) else "",
        chunks=fields.count(_CHUNKS) or 0,
        shares=shares,
    )


def _floats(header: Header, tensor: TensorInfo) -> Values:
    if ENCODINGS[tensor.type].name != "F32":
        raise _bad(header.path, f"stores {tensor.name} in another type than F32", tensor.name)
    return np.fromfile(header.path, dtype="<f4", count=tensor.elements, offset=tensor.offset)


def _from_legacy(path: Path) -> Importance:
    """The old format: a count; name, calls and values of each entry; chunks and the text's name."""
    data, at = path.read_bytes(), 0

    def number(what: str, low: int, high: int) -> int:
        nonlocal at
        if at + 4 > len(data):
            raise _bad(str(path), f"ends within {what}", None)
        (value,) = struct.unpack_from("<i", data, at)
        if not low <= value <= high:
            raise _bad(str(path), f"is no importance matrix: {what} is {value}", None)
        at += 4
        return value

    def text(what: str) -> str:
        nonlocal at
        length = number(f"the length of {what}", 0, min(_MAX_TEXT, len(data) - at))
        at += length
        return data[at - length : at].decode("utf-8", "replace")

    entries: dict[str, Values] = {}
    for index in range(number("the number of entries", 1, _MAX_ENTRIES)):
        name = text(f"the name of entry {index}")
        calls = number(f"the calls of {name}", -(2**31), 2**31 - 1)
        size = number(f"the size of {name}", 1, (len(data) - at) // 4)
        values = np.frombuffer(data, dtype="<f4", count=size, offset=at).copy()
        entries[name] = np.divide(values, max(1, calls), dtype=np.float32)
        at += 4 * size
    has_tail = at + 4 <= len(data)
    chunks = number("the number of chunks", -(2**31), 2**31 - 1) if has_tail else 0
    dataset = text("the text's name") if has_tail and at + 4 <= len(data) else ""
    return Importance(entries=entries, dataset=dataset, chunks=max(0, chunks))


def _bad(path: str, problem: str, tensor: str | None) -> ModelFileError:
    return refuse("BAD_IMATRIX", f"{Path(path).name} {problem}.", field=tensor, hint=_AGAIN)
