"""Rows of a tensor table -> tensors with their sizes and places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from worker.gguf.header import RECONVERT, TensorInfo, refuse
from worker.gguf.quant import ENCODINGS, REMOVED


class Row(NamedTuple):
    """A row of the tensor table as it is stored. `at` is the row's own place in the file."""

    name: str
    shape: tuple[int, ...]
    type: int
    relative: int
    at: int


def align(offset: int, alignment: int) -> int:
    """The next multiple of `alignment`."""
    return -(-offset // alignment) * alignment


def place(
    rows: Iterable[Row], begin: int, alignment: int, file_size: int
) -> tuple[TensorInfo, ...]:
    """The tensors of a file whose data section begins at `begin`.

    Each must begin where the one before it ends, rounded up to the alignment. llama.cpp takes
    nothing else, and so there are no holes, no overlaps and no offsets that overflow.
    """
    tensors: dict[str, TensorInfo] = {}
    expected = 0
    for row in rows:
        name, shape, kind, relative, at = row
        if name in tensors:
            raise refuse("DUPLICATE_TENSOR", f"The tensor {name} is there twice.",
                         at=at, field=name, got=name, hint=RECONVERT)  # fmt: skip
        elements, nbytes = _sizes(row)
        if relative != expected:
            raise refuse(
                "BAD_TENSOR_OFFSET", f"{name} does not begin where the tensor before it ends.",
                at=at, field=name, got=relative, limit=expected,
            )  # fmt: skip
        offset = begin + relative
        if offset + nbytes > file_size:
            raise refuse(
                "TRUNCATED", f"The file ends before the weights of {name} do.",
                at=offset, field=name, got=file_size, limit=offset + nbytes,
                hint="Download it again and compare its size or checksum.",
            )  # fmt: skip
        tensors[name] = TensorInfo(name, shape, kind, offset, relative, nbytes, elements)
        expected = align(relative + nbytes, alignment)
    return tuple(tensors.values())


def check_tail(tensors: tuple[TensorInfo, ...], begin: int, alignment: int, file_size: int) -> None:
    """Raise where more bytes follow the last tensor than one alignment."""
    end = align(max((t.offset + t.nbytes for t in tensors), default=begin), alignment)
    extra = file_size - end
    if extra > alignment:
        raise refuse(
            "TRAILING_BYTES", f"{extra} bytes follow the last tensor.",
            at=end, field="data", got=extra, limit=alignment,
            hint="Something is glued to the file; get it from its publisher.",
        )  # fmt: skip


def _sizes(row: Row) -> tuple[int, int]:
    """Elements and bytes of a tensor."""
    name, shape, kind, _, at = row
    encoding = ENCODINGS.get(kind)
    if encoding is None:
        old = REMOVED.get(kind)
        raise refuse(
            "BAD_TENSOR_TYPE",
            f"{name} is stored as {old}, which llama.cpp has dropped."
            if old else f"{name} has the unknown tensor type {kind}.",
            at=at, field=name, got=kind, limit=max(ENCODINGS),
            hint="Get a Q4_0 file, which is repacked while it is loaded."
            if old else "The file is damaged, or llama-cpp-python has to be updated.",
        )  # fmt: skip
    elements = 1
    for length in shape:
        elements *= length
    if not 0 < elements < 2**63:
        problem = f"has the impossible shape {list(shape)}"
    elif shape[0] % encoding.block:
        problem = f"has rows of {shape[0]} elements, which is no multiple of {encoding.block}"
    else:
        return elements, elements // encoding.block * encoding.nbytes
    raise refuse("BAD_SHAPE", f"{name} {problem}.",
                 at=at, field=name, got=list(shape), limit=encoding.block)  # fmt: skip
