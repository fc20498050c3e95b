"""How many cells are free, cached and live: one book for each layout of the KV cache."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from worker.engine.slot import Slot


class Pool(Protocol):
    """Counts cells. A cell is free, cached (only in cached slots) or live (in a running slot).

    num_cells   all cells; slot_cells of them at most in one slot
    """

    num_cells: int
    slot_cells: int
    num_live: int
    num_free: int

    def start(self, slot: Slot, capacity: int) -> None:
        """A slot begins to run, for a sequence of at most `capacity` tokens."""
        ...

    def stop(self, slot: Slot) -> None:
        """A slot runs no longer; its cells are as cached as those of the other cached slots."""
        ...

    def grow(self, slot: Slot, count: int) -> None:
        """A running slot gets its next `count` cells."""
        ...

    def share(self, source: Slot, target: Slot, stop: int) -> None:
        """The empty running slot `target` gets the source's first `stop` cells too."""
        ...

    def release(self, slot: Slot, begin: int) -> None:
        """A slot that does not run gives up its cells from position `begin` on."""
        ...

    def num_idle(self, slot: Slot, stop: int) -> int:
        """How many of the slot's first `stop` cells are in no running slot."""
        ...

    def check(self, slots: Iterable[Slot]) -> None:
        """Raise AssertionError with the numbers when the slots' cells do not add up."""
        ...


class UnifiedPool:
    """One pool for all slots; a cell may be in several of them, which share a prefix.

    Cell numbers are ours: llama.cpp places tokens where it likes, but the counts are the same,
    except that these books still count cells that were lost behind a sliding window.
    """

    def __init__(self, num_cells: int) -> None:
        self.num_cells = self.slot_cells = num_cells
        self.num_live = 0
        self.num_free = num_cells
        self._free = np.arange(num_cells, dtype=np.int32)  # the first num_free are free
        self._refs = np.zeros(num_cells, np.int32)  # slots that hold a cell
        self._live_refs = np.zeros(num_cells, np.int32)  # running ones of them

    def start(self, slot: Slot, capacity: int) -> None:
        held = slot.cells[: slot.length]
        slot.cells = np.empty(capacity, np.int32)
        slot.cells[: slot.length] = held
        self._add_live(held)

    def stop(self, slot: Slot) -> None:
        cells = slot.cells[: slot.length]
        self._live_refs[cells] -= 1
        self.num_live -= int(np.count_nonzero(self._live_refs[cells] == 0))

    def grow(self, slot: Slot, count: int) -> None:
        if count > self.num_free:
            raise AssertionError(f"{count} cells wanted, {self.num_free} free")
        begin, top = slot.length, self.num_free
        if count == 1:  # a decoding step: scalars are faster than slices
            cell = self._free[top - 1]
            slot.cells[begin] = cell
            self._refs[cell] = self._live_refs[cell] = 1
        else:
            cells = self._free[top - count : top]
            slot.cells[begin : begin + count] = cells
            self._refs[cells] = self._live_refs[cells] = 1
        self.num_free = top - count
        self.num_live += count

    def share(self, source: Slot, target: Slot, stop: int) -> None:
        target.cells[:stop] = cells = source.cells[:stop]
        self._refs[cells] += 1
        self._add_live(cells)

    def release(self, slot: Slot, begin: int) -> None:
        cells = slot.cells[begin : slot.length]
        self._refs[cells] -= 1
        freed = cells[self._refs[cells] == 0]
        self._free[self.num_free : self.num_free + len(freed)] = freed
        self.num_free += len(freed)

    def num_idle(self, slot: Slot, stop: int) -> int:
        return int(np.count_nonzero(self._live_refs[slot.cells[: min(stop, slot.length)]] == 0))

    def _add_live(self, cells: np.ndarray) -> None:
        """One more running slot holds these cells."""
        self.num_live += int(np.count_nonzero(self._live_refs[cells] == 0))
        self._live_refs[cells] += 1

    def check(self, slots: Iterable[Slot]) -> None:
        refs = np.zeros(self.num_cells, np.int32)
        live = np.zeros(self.num_cells, np.int32)
        for slot in slots:
            cells = slot.cells[: slot.length]
            np.add.at(refs, cells, 1)
            if slot.is_running:
                np.add.at(live, cells, 1)
        free = set(self._free[: self.num_free].tolist())
        numbers = f"free {self.num_free} live {self.num_live} of {self.num_cells}"
        if not (np.array_equal(refs, self._refs) and np.array_equal(live, self._live_refs)):
            raise AssertionError(f"references are wrong: {numbers}")
        if free != set(np.flatnonzero(refs == 0).tolist()) or len(free) != self.num_free:
            raise AssertionError(f"cells leak: {numbers}")
        if self.num_live != int(np.count_nonzero(live)):
            raise AssertionError(f"live cells are miscounted: {numbers}")


class StreamPool:
    """A stream of cells for each slot: nobody else can have them, and cell i holds position i."""

    def __init__(self, num_slots: int, slot_cells: int) -> None:
        self.num_cells = num_slots * slot_cells
        self.slot_cells = slot_cells
        self.num_live = 0
        self.num_free = self.num_cells

    def start(self, slot: Slot, capacity: int) -> None:  # noqa: ARG002
        self.num_live += slot.length

    def stop(self, slot: Slot) -> None:
        self.num_live -= slot.length

    def grow(self, slot: Slot, count: int) -> None:
        if slot.length + count > self.slot_cells:
            raise AssertionError(
                f"{count} cells wanted, {self.slot_cells - slot.length} left in slot {slot.index}"
            )
        self.num_live += count
        self.num_free -= count

    def share(self, source: Slot, target: Slot, stop: int) -> None:
        raise AssertionError(f"slots {source.index} and {target.index} cannot share {stop} cells")

    def release(self, slot: Slot, begin: int) -> None:
        self.num_free += slot.length - begin

    def num_idle(self, slot: Slot, stop: int) -> int:
        return 0 if slot.is_running else min(stop, slot.length)

    def check(self, slots: Iterable[Slot]) -> None:
        slots = list(slots)
        live = sum(slot.length for slot in slots if slot.is_running)
        held = sum(slot.length for slot in slots)
        if (self.num_live, self.num_cells - self.num_free) != (live, held):
            raise AssertionError(
                f"live {self.num_live}, free {self.num_free} of {self.num_cells}; "
                f"the slots hold {held}, the running ones {live}"
            )
        if any(slot.length > self.slot_cells for slot in slots):
            raise AssertionError(f"a slot holds more than {self.slot_cells} cells")
