"""Which KV cells hold which tokens: slots (sequence ids of the cache) and what they share."""

from __future__ import annotations

import numpy as np

from worker.engine.backend import Backend

_NOTHING = np.empty(0, np.int32)


class Slot:
    """A sequence id of the cache and what it holds. Only `Cells` writes its fields.

        tokens[:length]   are computed; cells[:length] are the cells that hold them

    A running slot belongs to a sequence, whose `tokens` it has. A cached slot was left by a
    sequence that ended or waits again. All others are free. A cell may be in several slots: they
    share a prefix.
    """

    __slots__ = ("cells", "index", "is_running", "length", "tokens")

    def __init__(self, index: int) -> None:
        self.index = index
        self.is_running = False
        self.tokens = _NOTHING
        self.cells = _NOTHING
        self.length = 0


class Cells:
    """The books of the KV cache; the backend is told of each change but `grow`, which it made.

    A cell is free, cached (only in cached slots) or live (in a running slot):

        num_cells = num_free + num_cached + num_live

    Cell numbers are ours: llama.cpp places tokens where it likes, but the counts are the same,
    except that these books still count cells that were lost behind a sliding window.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.num_cells = backend.num_cells
        self.slots = [Slot(index) for index in range(backend.num_slots)]
        self.num_live = 0
        self.num_free = self.num_cells
        self._free = np.arange(self.num_cells, dtype=np.int32)  # the first num_free are free
        self._free_slots = self.slots[::-1]
        self.cached: list[Slot] = []  # least recently used first
        self._refs = np.zeros(self.num_cells, np.int32)  # slots that hold a cell
        self._live_refs = np.zeros(self.num_cells, np.int32)  # running ones of them

    @property
    def num_available(self) -> int:
        """Cells that running sequences can still get: free ones and cached ones."""
        return self.num_cells - self.num_live

    @property
    def num_cached(self) -> int:
        """Cells that only cached slots hold."""
        return self.num_cells - self.num_live - self.num_free

    @property
    def num_idle_slots(self) -> int:
        """Slots that a sequence can get: free ones and cached ones."""
        return len(self._free_slots) + len(self.cached)

    def num_idle(self, slot: Slot, stop: int) -> int:
        """How many of the slot's first `stop` cells are in no running slot."""
        return int(np.count_nonzero(self._live_refs[slot.cells[: min(stop, slot.length)]] == 0))

    def take(self, tokens: np.ndarray) -> Slot:
        """An empty slot for a sequence of these tokens; `num_idle_slots` must not be 0.

        Where no slot is free the least recently used cached one is emptied.
        """
        if not self._free_slots:
            self.evict()
        slot = self._free_slots.pop()
        slot.is_running = True
        slot.tokens = tokens
        slot.cells = np.empty(len(tokens), np.int32)
        return slot

    def adopt(self, slot: Slot, tokens: np.ndarray) -> None:
        """Let a cached slot run again, for a sequence whose `tokens` begin with all it holds."""
        self.cached.remove(slot)
        cells = np.empty(len(tokens), np.int32)
        cells[: slot.length] = held = slot.cells[: slot.length]
        slot.is_running, slot.tokens, slot.cells = True, tokens, cells
        self._add_live(held)

    def grow(self, slot: Slot, count: int) -> None:
        """The next `count` tokens of a running slot are computed; that many cells must be free."""
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
        slot.length = begin + count
        self.num_free = top - count
        self.num_live += count

    def share(self, source: Slot, target: Slot, stop: int) -> None:
        """Give the running slot `target` the source's cells up to position `stop` too."""
        begin = target.length
        self._backend.share(source.index, target.index, begin, stop)
        target.cells[begin:stop] = cells = source.cells[begin:stop]
        target.length = stop
        self._refs[cells] += 1
        self._add_live(cells)

    def cut(self, slot: Slot, length: int) -> None:
        """Forget a cached slot's tokens from position `length` on."""
        self._release(slot.cells[length : slot.length])
        slot.length = length
        self._backend.drop(slot.index, length)

    def discard_beyond(self, slot: Slot) -> None:
        """Drop rows that were computed for a wrong guess, which these books never counted."""
        self._backend.drop(slot.index, slot.length)

    def retire(self, slot: Slot) -> None:
        """The slot's sequence ended or waits again; what it holds stays until it is needed."""
        self._stop_running(slot)
        if slot.length:
            self.cached.append(slot)
        else:
            self._empty(slot)

    def clear(self, slot: Slot) -> None:
        """Forget all that a running or cached slot holds; it is free afterwards."""
        if slot.is_running:
            self._stop_running(slot)
        else:
            self.cached.remove(slot)
        self._empty(slot)

    def touch(self, slot: Slot) -> None:
        """A cached slot was of use: it is the most recently used now."""
        self.cached.remove(slot)
        self.cached.append(slot)

    def evict(self) -> None:
        """Empty the least recently used cached slot."""
        self._empty(self.cached.pop(0))

    def make_room(self, count: int) -> None:
        """Evict until `count` cells are free; at most `num_available` can be."""
        while self.num_free < count:
            self.evict()

    def _empty(self, slot: Slot) -> None:
        self._release(slot.cells[: slot.length])
        slot.tokens = slot.cells = _NOTHING
        slot.length = 0
        self._free_slots.append(slot)
        self._backend.drop(slot.index)

    def _release(self, cells: np.ndarray) -> None:
        """One slot less holds these cells, and it does not run."""
        self._refs[cells] -= 1
        freed = cells[self._refs[cells] == 0]
        self._free[self.num_free : self.num_free + len(freed)] = freed
        self.num_free += len(freed)

    def _stop_running(self, slot: Slot) -> None:
        cells = slot.cells[: slot.length]
        self._live_refs[cells] -= 1
        self.num_live -= int(np.count_nonzero(self._live_refs[cells] == 0))
        slot.is_running = False

    def _add_live(self, cells: np.ndarray) -> None:
        """One more running slot holds these cells."""
        self.num_live += int(np.count_nonzero(self._live_refs[cells] == 0))
        self._live_refs[cells] += 1

    def check_integrity(self) -> None:
        """Raise AssertionError with the numbers when slots or cells do not add up."""
        refs = np.zeros(self.num_cells, np.int32)
        live = np.zeros(self.num_cells, np.int32)
        for slot in self.slots:
            cells = slot.cells[: slot.length]
            np.add.at(refs, cells, 1)
            if slot.is_running:
                np.add.at(live, cells, 1)
        free = set(self._free[: self.num_free].tolist())
        numbers = (
            f"free {self.num_free} cached {self.num_cached} live {self.num_live} "
            f"of {self.num_cells}, {len(self.cached)} cached slots"
        )
        if not (np.array_equal(refs, self._refs) and np.array_equal(live, self._live_refs)):
            raise AssertionError(f"references are wrong: {numbers}")
        if free != set(np.flatnonzero(refs == 0).tolist()) or len(free) != self.num_free:
            raise AssertionError(f"cells leak: {numbers}")
        if self.num_live != int(np.count_nonzero(live)):
            raise AssertionError(f"live cells are miscounted: {numbers}")
        states = [
            slot.is_running + (slot in self.cached) + (slot in self._free_slots)
            for slot in self.slots
        ]
        if states != [1] * len(self.slots):
            raise AssertionError(f"slots leak: {states}")
