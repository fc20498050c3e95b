"""What the slots of a context hold, copied: to host memory, back, to other slots and layouts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from worker import log, machine
from worker.cache.state import Parts
from worker.llama.context import Context
from worker.llama.states.state import CellRun, SavedState, SharedPositionsError, StateForm, learn
from worker.llama.weights import Weights
from worker.memory.saved_states import MAX_COPY_BUFFER


def own_memory(count: int) -> np.ndarray:
    """`count` bytes. Raises MemoryError where the machine could not do without them.

    It does so for more than the memory plan counts for a copy. The system would give more than
    there is, and end the process once it is used.
    """
    if count > MAX_COPY_BUFFER and count > machine.memory().available // 2:
        raise MemoryError(f"{count} bytes")
    return np.empty(count, np.uint8)


class Scratch:
    """Memory that is used again, because fresh memory costs more than what is copied into it.

    Larger requests than MAX_COPY_BUFFER get memory of their own.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def take(self, count: int) -> np.ndarray:
        """`count` bytes, valid until the next call. Raises MemoryError as `own_memory` does."""
        if count > MAX_COPY_BUFFER:
            return own_memory(count)
        if count > len(self._memory):
            self._memory = np.empty(min(MAX_COPY_BUFFER, count + count // 2), np.uint8)
        return self._memory[:count]


class SlotStates:
    """Copies states of a context's slots. The layout is learned from the first state seen."""

    def __init__(self, weights: Weights, context: Context) -> None:
        self._weights = weights
        self._is_recurrent = weights.is_recurrent
        self._context = context
        self._layout: StateForm | None = None
        self._is_learned = False
        self._transposes = False  # whether llama.cpp stores values so now
        self.free()

    def free(self) -> None:
        """Hold no memory for copies any more, until there is one."""
        # A blob that is read, and one that is written while the first is still in use.
        self._saved, self._joined = Scratch(), Scratch()

    def layout(self, empty_slot: int) -> StateForm | None:
        """The layout of this model's states; None where they cannot be kept.

        Where none was seen yet, one token is computed in `empty_slot`, which is empty afterwards.
        """
        if not self._is_learned:
            self._context.compute_one(empty_slot)
            self._read(self._context.state(empty_slot, self._saved.take))
            self._context.drop(empty_slot)
        return self._layout

    def save(self, slot: int) -> SavedState | None:
        """The slot's state, valid until the next `save` or `share`.

        None where the slot is empty, or its window has gaps, or llama.cpp refuses.
        """
        _, last = self._context.span(slot)
        if last < 0:
            return None
        # What cannot be cut has no gaps; its first position is that of the recurrent state.
        if not self._is_recurrent and not self._context.holds(slot, 0, last + 1):
            return None
        state = self._read(self._context.state(slot, self._saved.take))
        return state if state is not None and state.num_tokens == last + 1 else None

    def restore(self, slot: int, parts: Parts, rest: np.ndarray | None) -> bool:
        """Replace what the slot holds by a state; False: the slot is empty now."""
        self._context.drop(slot)
        layout = self.layout(slot)
        if layout is None:
            return False
        try:
            sources = layout.unpack(parts)
        except ValueError as error:
            log.get("llama").warning("a state has the wrong form", reason=str(error))
            return False
        return self._write(slot, sources, rest)

    def copy(self, source: int, target: int, stop: int) -> bool:
        """Give the empty slot `target` the source's first `stop` tokens.

        False where that is impossible, as with a part of a state that cannot be cut; the target is
        empty then.
        """
        state = self.save(source)
        if state is None or stop > state.num_tokens:
            return False
        if state.rest is not None and stop < state.num_tokens:
            return False
        return self._write(target, [(state.arrays, stop)], state.rest)

    def arrange(self, slots: Sequence[int], *, unified: bool) -> set[int]:
        """Another layout of the cells, with the states of `slots`; see `engine.backend.Backend`."""
        context = self._context
        before = context.fused
        if not context.has_cells or unified == context.unified:
            for slot in set(range(context.num_slots)) - set(slots):
                context.drop(slot)
            context.unified = unified
            return set(slots)
        blobs: dict[int, np.ndarray] = {}
        for slot in slots:
            if context.span(slot)[0] >= 0:
                blobs[slot] = context.state(slot, own_memory)
        if blobs and not self._is_learned:
            self._read(next(iter(blobs.values())))  # as they are stored now
        try:
            context.arrange(unified=unified)
        finally:
            self._transposes ^= context.fused != before
        kept: set[int] = set()
        for slot in list(blobs):
            state = self._read(blobs.pop(slot))
            if state is not None and self._write(
                slot, [(state.arrays, state.num_tokens)], state.rest
            ):
                kept.add(slot)
        return kept

    def _read(self, blob: np.ndarray) -> SavedState | None:
        """What llama.cpp wrote; None where that is not understood."""
        if not len(blob):
            return None
        if not self._is_learned:
            self._is_learned = True
            weights = self._weights
            self._layout = learn(
                blob,
                vocab_size=weights.vocab_size,
                has_cells=self._context.has_cells,
                has_window=weights.sliding_window > 0,
                is_recurrent=self._is_recurrent,
            )
            if self._layout is None:
                log.get("llama").warning(
                    "this model's states have an unknown form and are not kept"
                )
            else:
                self._transposes = self._layout.read(blob).is_transposed
        try:
            return self._layout.read(blob) if self._layout else None
        except SharedPositionsError:
            return None
        except ValueError as error:
            log.get("llama").warning("a state has an unexpected form", reason=str(error))
            return None

    def _write(self, slot: int, sources: list[CellRun], rest: np.ndarray | None) -> bool:
        """Replace what the slot holds; False: the slot is empty now."""
        context, layout = self._context, self._layout
        assert layout is not None
        context.drop(slot)
        if sum(count for _, count in sources) > context.slot_cells:
            return False
        try:
            blob, first = layout.join(
                sources, rest, context.num_streams, self._joined.take, transposed=self._transposes
            )
        except ValueError as error:
            log.get("llama").warning("a state has the wrong form", reason=str(error))
            return False
        if context.set_state(slot, blob, first):
            return True
        context.drop(slot)
        return False
