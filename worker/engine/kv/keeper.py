"""Copies states of slots to where they are kept, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from worker.cache.slot_file import KeptSequence
from worker.cache.store import Found, Store
from worker.engine.backend import Backend
from worker.engine.kv.cells import Cells
from worker.engine.request import Prompt
from worker.engine.sequence import Sequence
from worker.engine.slot import Slot

# Of a long prompt a state is kept every so many tokens. Those of hybrid models take 20 to 75 MB,
# as much as the attention cells of some thousand tokens.
EVERY = 2_048
# The last tokens of a prompt are often the template's: the next turn has others in their place,
# as <think> that is gone from an old answer. llama-server leaves as many.
_LAST = 4
# Marks nearer to each other, or to what is there already, are not worth the small batch that each
# of them costs.
APART = 32
# Where states must be copied at exactly one place, a sequence that computes stops there for
# others only if they have so many tokens of it.
WORTH_A_STOP = 32
# Seconds in which a byte is read from disk: 500 MB a second.
_READ_S = 2e-9


class Keeper:
    """Saves what ends, brings back what returns; does nothing without a store.

    A copy holds up the streams: where one of them would wait for more than `max_stall`, what is
    to be saved stays in its slot until nobody waits, and what is to be brought back is computed.
    """

    def __init__(
        self,
        cells: Cells,
        backend: Backend,
        store: Store | None,
        running: list[Sequence],
        clock: Callable[[], float],
        max_stall: float,
    ) -> None:
        """running: the scheduler's own list, which is read here."""
        self._cells = cells
        self._backend = backend
        self._store = store
        self._running = running
        self._clock = clock
        self._max_stall = max_stall
        self.keeps = store is not None
        self.marks_branches = self.keeps and backend.shape.needs_rest
        self._spent_s = 0.0  # on copies since the last step
        self.num_slow = 0  # tokens of what `find` found last, and did not name: it takes too long

    @property
    def has_work(self) -> bool:
        """Whether something that ended is not saved yet."""
        if self._store is not None:
            for slot in self._cells.cached:
                if not slot.is_saved:
                    return True
        return False

    def seconds(self, num_tokens: int) -> float:
        """How long it takes to copy the state of so many tokens."""
        return num_tokens * self._backend.kernels.cell_s

    def begin(self) -> None:
        """A step is over: streams wait from now on."""
        self._spent_s = 0.0

    def holds_up(self, seconds: float) -> bool:
        """Whether a stream would wait too long for one more thing, which takes so long."""
        wait = self._spent_s + seconds
        return wait > self._max_stall and any(s.num_sampled for s in self._running)

    def find(self, tokens: np.ndarray, prompt: Prompt, *, must: bool = False) -> Found | None:
        """What is kept of a prompt; None where it is nothing or takes too long to bring back.

        tokens: int32 [n]
        must: it is brought back, however long that takes
        """
        self.num_slow = 0
        if self._store is None:
            return None
        found = self._store.find(tokens, prompt.key_after(len(tokens)))
        if prompt.begin:
            alone = self._store.find(tokens[: prompt.begin])
            found = max(found, alone, key=lambda each: each.num_tokens)
        whole = prompt.whole(found.num_tokens)
        if whole < found.num_tokens:
            found = found._replace(num_tokens=0 if self._backend.shape.needs_rest else whole)
        wait = found.num_read * _READ_S + self.seconds(found.num_tokens)
        if self.holds_up(wait) and not must:
            self.num_slow = found.num_tokens
            return None
        return found if found.num_common else None

    def restore(self, slot: Slot, found: Found) -> tuple[int, int]:
        """Put what was found into an empty running slot.

        Returns how many tokens it has now, and how many of them were read from disk.
        """
        if self._store is None:
            return 0, 0
        started = self._clock()
        loaded = self._store.load(found)
        self._spent_s += self._clock() - started
        cells = self._cells
        if loaded is None or (self._backend.unified and loaded.num_tokens > cells.num_available):
            return 0, 0
        cells.make_room(loaded.num_tokens)
        started = self._clock()
        if not self._backend.restore(slot.index, loaded.parts, loaded.rest):
            return 0, 0
        cells.bring(slot, loaded.num_tokens)
        self._spent_s += self._clock() - started
        return loaded.num_tokens, loaded.num_read

    def put_aside(self, slot: Slot) -> bool:
        """Save what a running slot holds, however long that takes; whether all of it is kept."""
        if not slot.length:
            return True
        self._save(slot)
        tokens, key = slot.tokens[: slot.length], slot.prompt.key_after(slot.length)
        return self._store is not None and self._store.holds(tokens, key)

    def save_ended(self, seconds: float = math.inf) -> None:
        """Save what has ended and is not saved yet, as far as `seconds` are enough for it."""
        if self._store is None:
            return
        for slot in self._cells.cached:
            cost = self.seconds(slot.length)
            if slot.is_saved or self.holds_up(cost) or self._spent_s + cost > seconds:
                continue  # perhaps after the next step
            self._save(slot)
            slot.is_saved = True  # where it failed nothing more can be done

    def clear_ended(self) -> None:
        """Take what is saved out of a unified cache, where each row looks at all cells.

        To copy a cell back costs as much as some tens of rows that look at it. Nobody pays as long
        as nobody runs.
        """
        if self._backend.unified and self._running:
            for slot in [slot for slot in self._cells.cached if slot.is_saved]:
                self._cells.clear(slot)

    def take_out(
        self, tokens: np.ndarray, key: bytes, shorten: Callable[[np.ndarray, int], np.ndarray]
    ) -> KeptSequence | None:
        """The state after as many of these tokens as there is one of; None where it is none.

        shorten: the first of packed rows
        tokens is int32 [n], packed rows are uint8 [n].
        """
        if self._store is None:
            return None
        for slot in self._cells.cached:
            if slot.prompt.key_after(slot.length) == key and _begins(tokens, slot):
                self._save(slot)
        found = self._store.load(self._store.find(tokens, key))
        if found is None:
            return None
        count = found.num_tokens
        parts = [shorten(rows, number) for rows, number in found.parts]
        rests = self._store.rests(tokens[:count], key) if found.rest is not None else []
        return KeptSequence(key, tokens[:count], count, parts, rests)

    def erase(self, tokens: np.ndarray, key: bytes) -> None:
        """Forget what has ended and begins these tokens, as far as nothing else goes on from it.

        tokens: int32 [n]
        """
        for slot in [
            slot for slot in self._cells.cached if slot.prompt.key_after(slot.length) == key
        ]:
            if _begins(tokens, slot):
                self._cells.clear(slot)
        if self._store is not None:
            self._store.forget(tokens, key)

    def mark(self, slot: Slot, sequence: Sequence, branches: Iterable[int]) -> None:
        """Mark where states of a sequence that begins to run shall be kept on its way.

        Only of models whose states cannot be cut: at the places that its client named, where other
        prompts branch off, every so many tokens, and shortly before the prompt's end.
        """
        if not self.marks_branches:
            return
        prompt, last = sequence.num_prompt, sequence.num_prompt - _LAST
        named = [p for p in sequence.prompt.checkpoints if p <= last - _LAST]
        marks = [p for p in (*named, last) if p - slot.length >= APART]
        for place in sorted(branches):
            # What is kept behind the place is of no use to those who branch off there.
            if place < prompt and not any(0 <= place - m < APART for m in (*marks, slot.length)):
                marks.append(place)
        for place in range(EVERY, prompt, EVERY):
            near = [*marks, slot.length]
            if slot.length < place < last and min(abs(place - m) for m in near) >= APART:
                marks.append(place)
        for place in marks:
            slot.add_mark(place)

    def save_shared(self, slot: Slot) -> None:
        """Save what a running slot got of another one's cells, which may be needed soon.

        So prompts branch there. Not where nearly as much of it is kept.
        """
        if self._store is None or not self.marks_branches or slot.length < APART:
            return
        if self.holds_up(self.seconds(slot.length)):
            return
        kept = self._store.find(slot.tokens[: slot.length], slot.prompt.key_after(slot.length))
        if slot.length - kept.num_tokens >= APART:
            self._save(slot)

    def save_marked(self) -> None:
        """Save the states of running sequences that have come to a mark."""
        for sequence in self._running:
            slot = sequence.slot
            if slot is None or not slot.marks or slot.marks[0] > slot.length:
                continue
            due = [place for place in slot.marks if place <= slot.length]
            del slot.marks[: len(due)]
            if due[-1] == slot.length and not self.holds_up(self.seconds(slot.length)):
                self._save(slot)

    def _save(self, slot: Slot) -> None:
        tokens = slot.tokens[: slot.length]
        key = slot.prompt.key_after(slot.length)
        if self._store is None or self._store.holds(tokens, key):
            return
        if slot.position != slot.length:
            return  # states are read and written as cells of one position after the other
        started = self._clock()
        state = self._backend.save(slot.index)
        if state is not None and state.num_tokens == slot.length:
            self._store.keep(tokens, state, key)
            self._spent_s += self._clock() - started


def _begins(tokens: np.ndarray, slot: Slot) -> bool:
    """Whether all that a slot holds begins these tokens."""
    return bool(np.array_equal(tokens[: slot.length], slot.tokens[: slot.length]))
