"""Which slots of the KV cache hold which tokens, in either layout."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from worker.engine.backend import Backend
from worker.engine.kv.pool import Pool, StreamPool, UnifiedPool
from worker.engine.slot import Slot


class Cells:
    """The books of the KV cache; the backend is told of each change but `grow`, which it made.

    pool    how many cells are free and live: num_cells = num_free + num_cached + num_live
    slots   by index
    cached  slots that hold what nobody runs, least recently used first
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.slots = [Slot(index) for index in range(backend.shape.num_slots)]
        self.cached: list[Slot] = []
        self.pool = _new_pool(backend)

    @property
    def num_available(self) -> int:
        """Cells that running sequences can still get: free ones and cached ones."""
        return self.pool.num_cells - self.pool.num_live

    @property
    def num_cached(self) -> int:
        """Cells that only cached slots hold."""
        return self.pool.num_cells - self.pool.num_live - self.pool.num_free

    @property
    def num_idle_slots(self) -> int:
        """Slots that a sequence can get: free ones and cached ones."""
        return sum(not slot.is_running for slot in self.slots)

    def take(self, tokens: np.ndarray, spared: Slot | None = None) -> Slot:
        """An empty slot for a sequence of these tokens, not `spared`; there must be one.

        In the layout of streams it is one beside those that run, if there is one: rows of streams
        that are not neighbours are computed one after the other. Else a free one, or the least
        recently used cached one, which is emptied.
        tokens: int32 [n]
        """
        running = [slot.index for slot in self.slots if slot.is_running]
        first, last = (min(running), max(running)) if running else (0, len(self.slots))

        def cost(slot: Slot) -> tuple[bool, int]:
            beside = self._backend.unified or first - 1 <= slot.index <= last + 1
            return not beside, self.cached.index(slot) + 1 if slot.length else 0

        idle = [slot for slot in self.slots if not slot.is_running and slot is not spared]
        slot = min(idle, key=cost)
        if slot.length:
            self.clear(slot)
        slot.is_running = True
        slot.tokens = tokens
        self.pool.start(slot, len(tokens))
        return slot

    def spare_slots(self, count: int, rows: int) -> list[Slot]:
        """`count` slots that could have one more row in a step of so many; else none.

        In the layout of streams they are the next ones after those that run.
        """
        if self._backend.unified:
            idle = [slot for slot in self.slots if not slot.is_running]
            return idle[:count] if len(idle) >= count and self.pool.num_free >= rows + count else []
        last = max(slot.index for slot in self.slots if slot.is_running)
        beyond = self.slots[last + 1 : last + 1 + count]
        has_room = all(slot.length < self.pool.slot_cells for slot in beyond)
        return beyond if len(beyond) == count and has_room else []

    def spoil(self, slots: Iterable[Slot]) -> None:
        """Nobody knows what these slots hold, which do not run: forget it."""
        for slot in slots:
            if slot.length:
                self.clear(slot)
            else:
                self._backend.drop(slot.index)

    def adopt(self, slot: Slot, tokens: np.ndarray) -> None:
        """Let a cached slot run again, for a sequence whose `tokens` begin with all it holds.

        tokens: int32 [n]
        """
        self.cached.remove(slot)
        slot.is_running, slot.is_saved, slot.tokens = True, False, tokens
        self.pool.start(slot, len(tokens))

    def grow(self, slot: Slot, count: int) -> None:
        """A step computed the next `count` tokens of a running slot; so many cells must be free."""
        if count >= self._backend.kernels.wide and slot.num_wide == slot.length:
            slot.num_wide += count
        self._fill(slot, count)

    def bring(self, slot: Slot, count: int) -> None:
        """The first `count` tokens of a running slot came back into its cells."""
        self._fill(slot, count)
        slot.num_wide = count

    def _fill(self, slot: Slot, count: int) -> None:
        self.pool.grow(slot, count)
        slot.length += count

    def share(self, source: Slot, target: Slot, stop: int) -> bool:
        """Give the empty running slot `target` the source's first `stop` tokens too.

        False where there is no room for a copy, or the backend could not make it.
        """
        backend = self._backend
        copied = not backend.unified or not backend.shape.cuts_tails
        if copied:
            if stop > self.num_available:
                return False
            self.make_room(stop)  # which may take the source's cells
        if source.length < stop or not backend.share(
            source.index, target.index, source.prompt.position(stop)
        ):
            return False
        if copied:
            self._fill(target, stop)
        else:
            self.pool.share(source, target, stop)
            target.length = stop
        target.num_wide = min(source.num_wide, stop)
        return True

    def move(self, slot: Slot, index: int) -> bool:
        """Put what a running slot holds under another index, whose slot does not run.

        Only in the layout of streams. What the other slot holds is forgotten. False where the
        backend could not copy: the slot stays where it was.
        """
        other = self.slots[index]
        if other.length:
            self.clear(other)
        if slot.length:
            if not self._backend.share(slot.index, index, slot.position):
                return False
            self._backend.drop(slot.index)
        other.index, slot.index = slot.index, index
        self.slots[other.index], self.slots[index] = other, slot
        return True

    def cut(self, slot: Slot, length: int) -> None:
        """Forget a cached slot's tokens from position `length` on."""
        self.pool.release(slot, length)
        slot.length, slot.num_wide = length, min(slot.num_wide, length)
        self._backend.drop(slot.index, slot.position)

    def discard_beyond(self, slot: Slot) -> None:
        """Drop rows that were computed for a wrong guess, which these books never counted."""
        self._backend.drop(slot.index, slot.position)

    def retire(self, slot: Slot) -> None:
        """The slot's sequence ended or waits again; what it holds stays until it is needed."""
        self.pool.stop(slot)
        slot.is_running = False
        slot.marks = []
        if slot.length:
            self.cached.append(slot)
        else:
            self._empty(slot)

    def clear(self, slot: Slot) -> None:
        """Forget all that a running or cached slot holds; it is free afterwards."""
        if slot.is_running:
            self.pool.stop(slot)
        else:
            self.cached.remove(slot)
        self._empty(slot)

    def touch(self, slot: Slot) -> None:
        """A cached slot was of use: it is the most recently used now."""
        self.cached.remove(slot)
        self.cached.append(slot)

    def evict(self) -> None:
        """Empty the least recently used cached slot."""
        self.clear(self.cached[0])

    def make_room(self, count: int) -> None:
        """Evict until `count` cells are free; at most `num_available` can be.

        Streams have room of their own.
        """
        while self._backend.unified and self.pool.num_free < count:
            self.evict()

    def rearrange(self, kept: Collection[int]) -> None:
        """The backend has another layout now, and only the slots `kept` hold what they held."""
        self.pool = _new_pool(self._backend)
        self.cached = []
        for slot in self.slots:
            length = slot.length if slot.index in kept else 0
            slot.length = 0
            if not slot.is_running:
                slot.forget()
                continue
            self.pool.start(slot, len(slot.tokens))
            self._fill(slot, length)
            slot.num_wide = min(slot.num_wide, length)

    def _empty(self, slot: Slot) -> None:
        self.pool.release(slot, 0)
        slot.forget()
        self._backend.drop(slot.index)

    def check_integrity(self) -> None:
        """Raise AssertionError with the numbers when slots or cells do not add up."""
        self.pool.check(self.slots)
        if [slot.index for slot in self.slots] != list(range(len(self.slots))):
            raise AssertionError("slots do not stand at their index")
        states = [
            slot.is_running + (slot in self.cached) + (not slot.is_running and not slot.length)
            for slot in self.slots
        ]
        if states != [1] * len(self.slots):
            raise AssertionError(f"slots leak: {states}")


def _new_pool(backend: Backend) -> Pool:
    if backend.unified:
        return UnifiedPool(backend.shape.num_cells)
    return StreamPool(backend.shape.num_slots, backend.shape.stream_cells)
