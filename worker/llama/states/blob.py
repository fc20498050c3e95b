"""The bytes that llama.cpp writes for one sequence's state, as arrays.

Little endian, without padding, as of llama-cpp-python 0.3.36 and of llama.cpp b11549:

    blob       u32 magic, i32 sequence id (ignored when read), sections
    sections   plain attention: cells; with a sliding window: cells of the full layers, cells of
               the windowed layers; recurrent: one state; hybrid: its cells, then its state
    cells      u32 streams, for each: u32 count, and where that is not 0:
                 count x (i32 position, u32 1, [12 bytes x, y, token], i32 sequence id (ignored))
                 u32 whether values are transposed, u32 layers, [2 x u32 rotation]
                 layers x (i32 type, u64 row bytes, count x row)                     keys
                 layers x (i32 type, u64 row bytes, count x row)                     values; or
                 layers x (i32 type, u32 element bytes, u32 columns, columns x count x element)
               The rotations of quantised cells are there in states of version 4.
               The 12 bytes are there for some models (M-RoPE, n-gram embeddings), values are
               missing for latent attention (MLA).
    state      u32 1, i32 last position, u32 0, u32 0, u32 layers of the model,
               layers x (i32 type, u64 bytes, that many)

llama.cpp checks types and sizes where it reads this, but no positions.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec
import numpy as np

from worker.gguf.quant import ENCODINGS

MAGIC = 0xAF143CD8
HEAD_BYTES = 8
EXT_BYTES = 12
_META_BYTES = 12
_LAYER_HEAD_BYTES = 12
_MOST_LAYERS = 4096


class LayerRows(msgspec.Struct, frozen=True):
    """The keys or values of one layer: `width` bytes for each cell, an encoding's number."""

    type: int
    width: int

    @property
    def number_bytes(self) -> int:
        """Bytes of one number. Raises ValueError where numbers are packed into blocks."""
        encoding = ENCODINGS.get(self.type)
        if encoding is None or encoding.block != 1 or self.width % encoding.nbytes:
            raise ValueError(f"{self.width} bytes of encoding {self.type} cannot be transposed")
        return encoding.nbytes

    def head(self, *, transposed: bool) -> bytes:
        """What stands before the numbers."""
        if transposed:
            size = self.number_bytes
            return struct.pack("<iII", self.type, size, self.width // size)
        return struct.pack("<iQ", self.type, self.width)


class CellsForm(msgspec.Struct, frozen=True):
    """All of a section of cells that does not depend on how many there are.

    Nor on how attention is computed, for which llama.cpp stores values transposed or not.
    """

    ext_bytes: int
    num_layers: int
    layer_rows: tuple[LayerRows, ...]
    rotations: tuple[int, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes that belong to one cell alone."""
        return self.ext_bytes + sum(layer.width for layer in self.layer_rows)

    def num_bytes(self, count: int, num_streams: int) -> int:
        """Bytes of the section for `count` cells."""
        heads = 4 * (num_streams + 3 + len(self.rotations)) + _LAYER_HEAD_BYTES * len(
            self.layer_rows
        )
        return heads + count * (_META_BYTES + self.row_bytes)


class CellsSection(NamedTuple):
    """A section of cells; the arrays are views of the blob.

    positions  int32 [cells]
    arrays     uint8 [cells, width] of each layer, or where llama.cpp stores values transposed
               [cells, numbers] with unsigned numbers of an element's size; before them x, y and
               token of the cells, uint8 [cells, 12], where the model has them
    """

    form: CellsForm
    positions: np.ndarray
    arrays: list[np.ndarray]


class RecurrentForm(msgspec.Struct, frozen=True):
    """All of a recurrent section but its values and position. `parts`: type and bytes of each."""

    num_layers: int
    parts: tuple[tuple[int, int], ...]


class Reader:
    """Reads numbers and arrays one after the other. Raises ValueError behind the end.

    is_transposed  whether the values that were read so far stood there so
    """

    def __init__(self, data: np.ndarray, at: int = 0) -> None:
        """data: uint8 [n]"""
        self._data = data
        self.at = at
        self.is_transposed = False

    @property
    def is_at_end(self) -> bool:
        """Whether all was read."""
        return self.at == len(self._data)

    def bytes(self, count: int) -> np.ndarray:
        """A view of the next `count` bytes, uint8. Raises ValueError."""
        stop = self.at + count
        if stop > len(self._data):
            raise ValueError(f"{count} bytes wanted at {self.at} of {len(self._data)}")
        found = self._data[self.at : stop]
        self.at = stop
        return found

    def numbers(self, layout: str) -> tuple[int, ...]:
        """The next numbers; `layout` as in `struct`."""
        return struct.unpack(layout, self.bytes(struct.calcsize(layout)).tobytes())

    def head(self) -> None:
        """Raises ValueError if the data is no state of llama.cpp."""
        if self.numbers("<Ii")[0] != MAGIC:
            raise ValueError("a state must begin with llama.cpp's magic number")

    def cells(self, ext_bytes: int, *, has_values: bool, num_rotations: int = 0) -> CellsSection:
        """Raises ValueError."""
        found: CellsSection | None = None
        (num_streams,) = self.numbers("<I")
        for _ in range(num_streams):
            (count,) = self.numbers("<I")
            if count and found is not None:
                raise ValueError("the cells of a sequence are in two streams")
            if count:
                found = self._stream(count, ext_bytes, has_values, num_rotations)
        if found is None:
            raise ValueError("there are no cells")
        return found

    def _stream(
        self, count: int, ext_bytes: int, has_values: bool, num_rotations: int
    ) -> CellsSection:
        width = _META_BYTES + ext_bytes
        meta = self.bytes(count * width).reshape(count, width)
        places = meta[:, :8].copy().view("<u4")
        if (places[:, 1] != 1).any():
            raise ValueError("a cell belongs to several sequences")
        arrays = [meta[:, 8 : 8 + ext_bytes]] if ext_bytes else []
        is_transposed, num_layers = self.numbers("<II")
        if num_layers > _MOST_LAYERS or is_transposed > 1:
            raise ValueError(f"{num_layers} layers")
        self.is_transposed = bool(is_transposed)
        rotations = self.numbers(f"<{num_rotations}I")
        layer_rows: list[LayerRows] = []
        for index in range(num_layers * (2 if has_values else 1)):
            if is_transposed and index >= num_layers:
                kind, size, columns = self.numbers("<iII")
                layer = LayerRows(kind, size * columns)
                if layer.number_bytes != size:
                    raise ValueError(f"numbers of {size} bytes")
                across = self.bytes(count * layer.width).reshape(columns, count * size)
                arrays.append(_numbers(across, size).T)
            else:
                layer = LayerRows(*self.numbers("<iQ"))
                arrays.append(self.bytes(count * layer.width).reshape(count, layer.width))
            layer_rows.append(layer)
        form = CellsForm(ext_bytes, num_layers, tuple(layer_rows), rotations)
        return CellsSection(form, places[:, 0].view("<i4"), arrays)

    def state(self) -> tuple[RecurrentForm, int]:
        """A recurrent section, which ends the blob: its form and its last position. Raises
        ValueError."""
        count, position, num_ids, is_transposed, num_layers = self.numbers("<IiIII")
        if (count, num_ids, is_transposed) != (1, 0, 0) or num_layers > _MOST_LAYERS:
            raise ValueError(f"{count} recurrent states")
        parts: list[tuple[int, int]] = []
        while not self.is_at_end:
            kind, nbytes = self.numbers("<iQ")
            self.bytes(nbytes)
            parts.append((kind, nbytes))
        return RecurrentForm(num_layers, tuple(parts)), position


class Writer:
    """Fills `out`, uint8 [n], from its beginning."""

    def __init__(self, out: np.ndarray) -> None:
        """out: uint8 [n]"""
        self._out = out
        self.at = 0

    def bytes(self, data: np.ndarray | bytes) -> None:
        """Copy bytes."""
        array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
        self._out[self.at : self.at + len(array)] = array
        self.at += len(array)

    def numbers(self, *numbers: int) -> None:
        self.bytes(struct.pack(f"<{len(numbers)}I", *numbers))

    def cells(
        self,
        form: CellsForm,
        first: int,
        sources: list[tuple[list[np.ndarray], int]],
        num_streams: int,
        *,
        transposed: bool,
    ) -> None:
        """A section of cells at positions from `first`, in the first of `num_streams` streams.

        sources:    arrays as in `CellsSection`, and how many of their first cells to take
        transposed: whether values are to be

        Raises ValueError where they cannot be.
        """
        count = sum(number for _, number in sources)
        self.numbers(num_streams, count)
        width = _META_BYTES + form.ext_bytes
        meta = self._array(count, width)
        meta[...] = 0
        meta[:, :4] = np.arange(first, first + count, dtype="<i4")[:, None].view(np.uint8)
        meta[:, 4] = 1
        before = bool(form.ext_bytes)
        if before:
            _gather(meta[:, 8 : 8 + form.ext_bytes], 0, sources)
        self.numbers(transposed, form.num_layers, *form.rotations)
        for number, layer in enumerate(form.layer_rows):
            is_transposed = transposed and number >= form.num_layers
            self.bytes(layer.head(transposed=is_transposed))
            if is_transposed:
                size = layer.number_bytes
                across = self._array(layer.width // size, count * size)
                _gather(_numbers(across, size).T, before + number, sources)
            else:
                _gather(self._array(count, layer.width), before + number, sources)
        self.numbers(*[0] * (num_streams - 1))

    def _array(self, rows: int, width: int) -> np.ndarray:
        stop = self.at + rows * width
        array = self._out[self.at : stop].reshape(rows, width)
        self.at = stop
        return array


def _gather(out: np.ndarray, index: int, sources: list[tuple[list[np.ndarray], int]]) -> None:
    at = 0
    for arrays, count in sources:
        copy_rows(out[at : at + count], arrays[index][:count])
        at += count


def copy_rows(out: np.ndarray, rows: np.ndarray) -> None:
    """Copy rows of bytes or of larger numbers into rows of the same bytes, in either form."""
    if out.itemsize < rows.itemsize:
        out = _numbers(out, rows.itemsize)
    elif rows.itemsize < out.itemsize:
        rows = _numbers(rows, out.itemsize)
    out[...] = rows


def _numbers(rows: np.ndarray, size: int) -> np.ndarray:
    """Rows of bytes as rows of numbers of `size` bytes."""
    return rows.view(f"<u{size}")
