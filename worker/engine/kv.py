"""Who owns which KV cells: slots (sequence ids of the cache) and the prefixes they share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from worker.engine.sequence import Sequence


class Slot:
    """A sequence id of the cache and what it holds.

        tokens[:length]   are computed; cells[:length] are the cells that hold them

    A cell may be in several slots: they share a prefix. The slot's sequence runs (`owner`), or
    has ended and left its cells for whoever comes with the same prefix.
    """

    __slots__ = ("cells", "index", "last_used", "length", "owner", "tokens")

    def __init__(self, index: int) -> None:
        self.index = index
        self.owner: Sequence | None = None
        self.tokens = _NOTHING
        self.cells = _NOTHING
        self.length = 0
        self.last_used = 0


_NOTHING = np.empty(0, np.int32)


class Cells:
    """The books of the cache. Only the scheduler calls what changes them.

    A cell is free, cached (only in slots without an owner) or live:

        num_cells = num_free + num_cached + num_live

    Cell numbers are ours: llama.cpp places tokens where it likes, but the counts are the same.
    """

    def __init__(self, num_cells: int, num_slots: int) -> None:
        self.num_cells = num_cells
        self.slots = [Slot(index) for index in range(num_slots)]
        self.num_live = 0
        self._free_slots = self.slots[::-1]
        self._cached: list[Slot] = []  # least recently used first
        self._refs = np.zeros(num_cells, np.int32)
        self._live_refs = np.zeros(num_cells, np.int32)
        self._free = np.arange(num_cells, dtype=np.int32)
        self._num_free = num_cells

    @property
    def num_free(self) -> int:
        """Cells that no slot holds."""
        return self._num_free

    @property
    def num_available(self) -> int:
        """Cells that running sequences can still get: free ones and cached ones."""
        return self.num_cells - self.num_live

    @property
    def num_cached(self) -> int:
        """Cells that only ended sequences hold."""
        return self.num_cells - self.num_live - self._num_free

    @property
    def cached(self) -> list[Slot]:
        """Slots of ended sequences, least recently used first."""
        return self._cached

    def take(self, sequence: Sequence) -> int | None:
        """Give the sequence a slot.

        Returns the index of a cached slot that was emptied for it, which the caller must drop
        from the backend, or None. There must be a slot that has no owner.
        """
        evicted = None
        if not self._free_slots:
            evicted = self.evict()
        slot = self._free_slots.pop()
        slot.owner = sequence
        slot.tokens = sequence.tokens
        slot.cells = np.empty(len(sequence.tokens), np.int32)
        slot.length = 0
        sequence.slot = slot.index
        return evicted

    def adopt(self, slot: Slot, sequence: Sequence) -> None:
        """Give the sequence a cached slot together with all that it holds, without a copy."""
        self._cached.remove(slot)
        cells = np.empty(len(sequence.tokens), np.int32)
        cells[: slot.length] = slot.cells[: slot.length]
        slot.owner, slot.tokens, slot.cells = sequence, sequence.tokens, cells
        held = cells[: slot.length]
        self.num_live += int(np.count_nonzero(self._live_refs[held] == 0))
        self._live_refs[held] += 1
        sequence.slot = slot.index

    def num_idle(self, slot: Slot, stop: int) -> int:
        """How many of the slot's first `stop` cells are cached only."""
        return int(np.count_nonzero(self._live_refs[slot.cells[: min(stop, slot.length)]] == 0))

    @property
    def has_slot(self) -> bool:
        """Whether `take` can succeed."""
        return bool(self._free_slots or self._cached)

    def grow(self, slot: Slot, count: int) -> None:
        """The next `count` tokens of the slot are computed; that many cells must be free."""
        if count > self._num_free:
            raise AssertionError(f"{count} cells wanted, {self._num_free} free")
        top = self._num_free
        self._num_free = top - count
        begin = slot.length
        if count == 1:  # a decoding step: scalars are faster than slices
            cell = self._free[top - 1]
            slot.cells[begin] = cell
            self._refs[cell] = self._live_refs[cell] = 1
        else:
            cells = self._free[top - count : top]
            slot.cells[begin : begin + count] = cells
            self._refs[cells] = self._live_refs[cells] = 1
        slot.length = begin + count
        self.num_live += count

    def share(self, source: Slot, target: Slot, stop: int) -> None:
        """Give `target`, which must have an owner, the source's cells up to position `stop`."""
        begin = target.length
        cells = source.cells[begin:stop]
        target.cells[begin:stop] = cells
        self.num_live += int(np.count_nonzero(self._live_refs[cells] == 0))
        self._refs[cells] += 1
        self._live_refs[cells] += 1
        target.length = stop

    def cut(self, slot: Slot, length: int) -> None:
        """Forget the slot's tokens from position `length`."""
        self._release(slot.cells[length : slot.length], live=slot.owner is not None)
        slot.length = length

    def retire(self, slot: Slot, clock: int) -> None:
        """The slot's sequence ended or waits again; its cells stay until they are needed."""
        self._unown(slot)
        slot.last_used = clock
        if slot.length:
            self._cached.append(slot)
        else:
            self._empty(slot)

    def clear(self, slot: Slot) -> None:
        """Forget all that the slot holds; it is free afterwards."""
        if slot.owner is not None:
            self._unown(slot)
        else:
            self._cached.remove(slot)
        self._empty(slot)

    def touch(self, slot: Slot, clock: int) -> None:
        """A cached slot was of use: it is the most recently used now."""
        if slot.owner is None:
            slot.last_used = clock
            self._cached.remove(slot)
            self._cached.append(slot)

    def evict(self) -> int:
        """Empty the least recently used cached slot; its index."""
        slot = self._cached.pop(0)
        self._empty(slot)
        return slot.index

    def _unown(self, slot: Slot) -> None:
        cells = slot.cells[: slot.length]
        self._live_refs[cells] -= 1
        self.num_live -= int(np.count_nonzero(self._live_refs[cells] == 0))
        if slot.owner is not None:
            slot.owner.slot = None
        slot.owner = None

    def _empty(self, slot: Slot) -> None:
        self._release(slot.cells[: slot.length], live=False)
        slot.tokens = slot.cells = _NOTHING
        slot.length = 0
        self._free_slots.append(slot)

    def _release(self, cells: np.ndarray, *, live: bool) -> None:
        if live:
            self._live_refs[cells] -= 1
            self.num_live -= int(np.count_nonzero(self._live_refs[cells] == 0))
        self._refs[cells] -= 1
        freed = cells[self._refs[cells] == 0]
        self._free[self._num_free : self._num_free + len(freed)] = freed
        self._num_free += len(freed)

    def num_slots_besides(self, slot: Slot) -> int:
        """Slots that a sequence could get without touching this one."""
        return len(self._free_slots) + len(self._cached) - (slot.owner is None)

    def redundant(self, slot: Slot) -> list[Slot]:
        """Cached slots that hold nothing but a beginning of this one, or this one if another
        cached slot begins with all of it."""
        if not slot.length:
            return []
        shorter: list[Slot] = []
        for other in self._cached:
            if other is slot:
                continue
            limit = min(other.length, slot.length)
            if other.tokens[limit - 1] != slot.tokens[limit - 1]:
                continue
            if np.array_equal(other.tokens[:limit], slot.tokens[:limit]):
                if other.length > slot.length:
                    return [slot]
                shorter.append(other)
        return shorter

    def longest_prefix(
        self, tokens: np.ndarray, is_useful: Callable[[Slot, int], bool]
    ) -> tuple[Slot | None, int]:
        """The slot that knows the longest beginning of `tokens`, computed or about to be.

        Only slots of which `is_useful(slot, tokens in common)` holds count. Returns
        (slot, tokens in common); (None, 0) where nothing matches.
        """
        best, most = None, 0
        for slot in self.slots:
            owner = slot.owner
            known = slot.length if owner is None else owner.num_known
            limit = min(known, len(tokens))
            # Cheap tests first: most slots differ early, or cannot beat the best.
            if limit <= most or slot.tokens[most] != tokens[most]:
                continue
            differ = slot.tokens[:limit] != tokens[:limit]
            common = int(differ.argmax()) if differ.any() else limit
            if common > most and is_useful(slot, common):
                best, most = slot, common
        return (best, most) if most else (None, 0)

    def check_integrity(self) -> None:
        """Raise AssertionError with the numbers when slots or cells do not add up."""
        refs = np.zeros(self.num_cells, np.int32)
        live = np.zeros(self.num_cells, np.int32)
        for slot in self.slots:
            cells = slot.cells[: slot.length]
            np.add.at(refs, cells, 1)
            if slot.owner is not None:
                np.add.at(live, cells, 1)
                if slot.owner.slot != slot.index:
                    raise AssertionError(f"slot {slot.index} and {slot.owner.id} disagree")
        free = set(self._free[: self._num_free].tolist())
        numbers = (
            f"free {self._num_free} cached {self.num_cached} live {self.num_live} "
            f"of {self.num_cells}, {len(self._cached)} cached slots"
        )
        if not (np.array_equal(refs, self._refs) and np.array_equal(live, self._live_refs)):
            raise AssertionError(f"references are wrong: {numbers}")
        if free != set(np.flatnonzero(refs == 0).tolist()) or len(free) != self._num_free:
            raise AssertionError(f"cells leak: {numbers}")
        if self.num_live != int(np.count_nonzero(live)):
            raise AssertionError(f"live cells are miscounted: {numbers}")
        states = [
            (slot.owner is not None) + (slot in self._cached) + (slot in self._free_slots)
            for slot in self.slots
        ]
        if states != [1] * len(self.slots):
            raise AssertionError(f"slots leak: {states}")
