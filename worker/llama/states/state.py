"""States of sequences, copied out of a context and back into one.

A state has rows, which belong to single tokens, and for some models a rest, which belongs to all
tokens at once. Parts of rows and rests may come from a file that somebody damaged or made by hand.
So positions and sequence ids are never taken from there, and all lengths are compared with those
of a state that llama.cpp wrote, before llama.cpp sees them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from worker.cache.state import Parts
from worker.llama.states.blob import (
    EXT_BYTES,
    HEAD_BYTES,
    MAGIC,
    CellsForm,
    CellsSection,
    Reader,
    RecurrentForm,
    Writer,
    copy_rows,
)

_VERSION = 2  # values of a cell side by side, however llama.cpp stores them
_ALIGNMENT = 256  # cells; llama.cpp computes with a multiple of them, kernels in smaller groups
CellRun = tuple[list[np.ndarray], int]  # arrays of cells, and how many of their first cells count


class SharedPositionsError(ValueError):
    """Cells of a picture share positions, as M-RoPE has it: they stay in the cells only."""


class SavedState:
    """Implements `worker.cache.state.SlotState`. Its rows are views of the blob that was read.

    is_transposed  whether llama.cpp stores this context's values so
    """

    def __init__(
        self,
        num_tokens: int,
        arrays: list[np.ndarray],
        rest: np.ndarray | None,
        *,
        is_transposed: bool,
    ) -> None:
        """arrays: [num_tokens, n] each; rest: uint8 [n]"""
        self.num_tokens = num_tokens
        self.rest = rest
        self.arrays = arrays
        self.is_transposed = is_transposed

    def rows(self, begin: int, stop: int) -> np.ndarray:
        """Rows of the tokens at positions begin to stop - 1, layer by layer; a copy, uint8."""
        count = stop - begin
        widths = [array.shape[1] * array.itemsize for array in self.arrays]
        out = np.empty(count * sum(widths), np.uint8)
        at = 0
        for array, width in zip(self.arrays, widths, strict=True):
            end = at + count * width
            copy_rows(out[at:end].reshape(count, width), array[begin:stop])
            at = end
        return out


class StateForm(msgspec.Struct, frozen=True):
    """How the states of one model in one kind of context are laid out.

    full       sections of cells that hold all tokens
    windowed   sections of cells that hold the last tokens
    recurrent  the section of recurrent layers, if there are any
    """

    full: tuple[CellsForm, ...]
    windowed: tuple[CellsForm, ...]
    recurrent: RecurrentForm | None
    vocab_size: int

    @property
    def signature(self) -> bytes:
        """Differs where a state of one layout must not be read in the other, 32 bytes."""
        return hashlib.sha256(msgspec.msgpack.encode((_VERSION, self))).digest()

    @property
    def row_bytes(self) -> int:
        """Bytes that belong to one token alone."""
        return sum(form.row_bytes for form in self.full)

    @property
    def has_rest(self) -> bool:
        """Whether something belongs to all tokens at once."""
        return bool(self.windowed) or self.recurrent is not None

    def read(self, blob: np.ndarray) -> SavedState:
        """A state that llama.cpp wrote. Raises ValueError where it has another layout.

        blob: uint8 [n]
        """
        reader = Reader(blob)
        reader.head()
        arrays: list[np.ndarray] = []
        num_tokens = 0
        for form in self.full:
            cells = _read_cells(reader, form)
            num_tokens = len(cells.positions)
            arrays += _in_order(cells, 0, num_tokens)
        windows = [_read_cells(reader, form) for form in self.windowed]
        start = reader.at
        if self.recurrent is not None:
            position = self._read_recurrent(reader)
            num_tokens = num_tokens if self.full else position + 1
            if position != num_tokens - 1:
                raise ValueError(f"the recurrent state of {position + 1} tokens, not {num_tokens}")
        if not reader.is_at_end:
            raise ValueError("a state is longer than it should be")
        rest = self._rest(windows, num_tokens, blob[start:]) if self.has_rest else None
        return SavedState(num_tokens, arrays, rest, is_transposed=reader.is_transposed)

    def _rest(
        self, windows: list[CellsSection], num_tokens: int, recurrent: np.ndarray
    ) -> np.ndarray:
        """Windowed sections of one stream, the oldest cell first, and the recurrent section."""
        counts = [len(cells.positions) for cells in windows]
        forms = zip(self.windowed, counts, strict=True)
        size = sum(form.num_bytes(count, 1) for form, count in forms) + len(recurrent)
        writer = Writer(rest := np.empty(size, np.uint8))
        for cells, count in zip(windows, counts, strict=True):
            first = num_tokens - count
            own = [(_in_order(cells, first, count), count)]
            writer.cells(cells.form, first, own, 1, transposed=False)
        writer.bytes(recurrent)
        return rest

    def unpack(self, parts: Parts) -> list[CellRun]:
        """Packed rows as arrays. Raises ValueError where lengths are wrong."""
        sources: list[CellRun] = []
        for packed, count in parts:
            total = len(packed) // self.row_bytes if self.row_bytes else count
            if packed.dtype != np.uint8 or packed.ndim != 1:
                raise ValueError("rows must be bytes")
            if len(packed) != total * self.row_bytes or not 0 < count <= total:
                raise ValueError(f"{len(packed)} bytes for {count} rows of {self.row_bytes}")
            reader = Reader(packed)
            arrays: list[np.ndarray] = []
            for form in self.full:
                widths = [form.ext_bytes] if form.ext_bytes else []
                widths += [layer.width for layer in form.layer_rows]
                arrays += [reader.bytes(total * width).reshape(total, width) for width in widths]
            sources.append((arrays, count))
        return sources

    def shorten(self, packed: np.ndarray, count: int) -> np.ndarray:
        """The first `count` of packed rows, packed; uint8 [n]."""
        if len(packed) == count * self.row_bytes:
            return packed
        [(arrays, _)] = self.unpack([(packed, count)])
        return np.concatenate([array[:count].reshape(-1) for array in arrays])

    def join(
        self,
        sources: list[CellRun],
        rest: np.ndarray | None,
        num_streams: int,
        take: Callable[[int], np.ndarray],
        *,
        transposed: bool,
    ) -> tuple[np.ndarray, int]:
        """The blob for a context of so many streams, and the first position that all layers have.

        take: gives the memory that it is written to
        transposed: whether that context stores values so
        ValueError where something is wrong.

        In streams a window's cells go to places that differ by a multiple of `_ALIGNMENT` from
        those where they were computed. Sums are then taken in the same groups, and logits are the
        same bit for bit. Empty cells before them fill the gap; nothing looks at those
        (`Context.set_state`). One kernel still differs in the last digits: a single row over 512
        cells or more is shared among threads by the number of cells.
        """
        num_tokens = sum(count for _, count in sources)
        if not num_tokens or (rest is not None) != self.has_rest:
            raise ValueError(f"{num_tokens} rows, and a rest is wrong")
        windows, recurrent = self._check_rest(rest, num_tokens) if rest is not None else ([], None)
        sections: list[tuple[CellsForm, int, list[CellRun]]] = []
        at = earliest = 0
        for form in self.full:
            stop = at + len(form.layer_rows) + bool(form.ext_bytes)
            own = [(arrays[at:stop], count) for arrays, count in sources]
            self._check_ext(form, own)
            sections.append((form, 0, own))
            at = stop
        for cells in windows:
            first = num_tokens - len(cells.positions)
            empty = first % _ALIGNMENT if num_streams > 1 else 0
            own = [_zeros(cells, empty)] if empty else []
            sections.append((cells.form, first - empty, [*own, (cells.arrays, num_tokens - first)]))
            earliest = max(earliest, first)
        size = HEAD_BYTES + (0 if recurrent is None else len(recurrent))
        for form, _, own in sections:
            size += form.num_bytes(sum(count for _, count in own), num_streams)
        out = take(size)
        writer = Writer(out)
        writer.numbers(MAGIC, 0)
        for form, first, own in sections:
            writer.cells(form, first, own, num_streams, transposed=transposed)
        if recurrent is not None:
            writer.bytes(recurrent)
        return out, earliest

    def _check_rest(
        self, rest: np.ndarray, num_tokens: int
    ) -> tuple[list[CellsSection], np.ndarray | None]:
        """Windows and the recurrent section. Raises ValueError for what `_rest` does not write."""
        if rest.dtype != np.uint8 or rest.ndim != 1:
            raise ValueError("a rest must be bytes")
        reader, windows = Reader(rest), list[CellsSection]()
        for form in self.windowed:
            begin = reader.at
            cells = _read_cells(reader, form)
            count = len(cells.positions)
            if reader.at - begin != form.num_bytes(count, 1) or count > num_tokens:
                raise ValueError(f"{count} cells in the window of {num_tokens} tokens")
            _in_order(cells, num_tokens - count, count, sort=False)
            self._check_ext(form, [(cells.arrays, count)])
            windows.append(cells)
        start = reader.at
        if self.recurrent is not None and self._read_recurrent(reader) != num_tokens - 1:
            raise ValueError("the recurrent state has another length")
        if not reader.is_at_end:
            raise ValueError("a rest is longer than it should be")
        return windows, rest[start:] if self.recurrent is not None else None

    def _check_ext(self, form: CellsForm, sources: list[CellRun]) -> None:
        """Raise ValueError for tokens that the vocabulary does not have."""
        for arrays, count in sources if form.ext_bytes else []:
            tokens = arrays[0][:count, 8:].copy().view("<i4")
            if tokens.min() < 0 or tokens.max() >= self.vocab_size:
                raise ValueError("a cell has a token that does not exist")

    def _read_recurrent(self, reader: Reader) -> int:
        form, position = reader.state()
        if form != self.recurrent:
            raise ValueError("a recurrent state has another layout")
        return position


def learn(
    blob: np.ndarray, *, vocab_size: int, has_cells: bool, has_window: bool, is_recurrent: bool
) -> StateForm | None:
    """The layout of the states that this one belongs to; None where it is none that we know.

    blob: uint8 [n]
    """
    for layout in _guesses(blob, vocab_size, has_cells, has_window, is_recurrent):
        try:
            layout.read(blob)
        except ValueError:
            continue
        return layout
    return None


def _guesses(
    blob: np.ndarray, vocab_size: int, has_cells: bool, has_window: bool, is_recurrent: bool
) -> Iterator[StateForm]:
    """Each layout of a known kind that the bytes can be read as."""
    most = 2 if has_cells else 0
    for count in range(2 if has_window else min(1, most), most + 1):
        num_full = 1 if has_window else count
        for ext_bytes, num_rotations in itertools.product((0, EXT_BYTES), (0, 2)):
            for has_values in itertools.product((True, False), repeat=count):
                reader = Reader(blob)
                try:
                    reader.head()
                    forms = tuple(
                        reader.cells(ext_bytes, has_values=v, num_rotations=num_rotations).form
                        for v in has_values
                    )
                    recurrent = reader.state()[0] if is_recurrent else None
                except ValueError:
                    continue
                yield StateForm(forms[:num_full], forms[num_full:], recurrent, vocab_size)


def _read_cells(reader: Reader, form: CellsForm) -> CellsSection:
    cells = reader.cells(
        form.ext_bytes,
        has_values=len(form.layer_rows) > form.num_layers,
        num_rotations=len(form.rotations),
    )
    if cells.form != form:
        raise ValueError("a section of cells has another layout")
    return cells


def _zeros(cells: CellsSection, count: int) -> CellRun:
    """So many cells of nothing but zeros, before those of a window."""
    return [np.zeros((count, array.shape[1]), array.dtype) for array in cells.arrays], count


def _in_order(
    cells: CellsSection, first: int, count: int, *, sort: bool = True
) -> list[np.ndarray]:
    """The cells' arrays by position. Raises ValueError unless those are first to first + count,
    SharedPositionsError where M-RoPE gave several cells one."""
    wanted = np.arange(first, first + count, dtype=np.int32)
    if np.array_equal(cells.positions, wanted):
        return cells.arrays
    order = np.argsort(cells.positions, kind="stable")
    if len(np.unique(cells.positions)) < len(cells.positions):
        raise SharedPositionsError("cells share positions")
    if not sort or not np.array_equal(cells.positions[order], wanted):
        raise ValueError("positions are missing")
    return [array[order] for array in cells.arrays]
