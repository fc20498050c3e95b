"""Which layout the KV cache has, and where in it running sequences stand."""

from __future__ import annotations

from worker.engine.backend import Backend, BatchError
from worker.engine.kv.cells import Cells
from worker.engine.kv.keeper import Keeper
from worker.engine.sequence import RESERVE, Sequence
from worker.engine.stats import Stats


class Layout:
    """Chooses between two layouts of the KV cache, and closes gaps between streams.

    **Streams**: each slot has cells of its own, and a row looks at its own cells only. A slot
    can have `num_cells / num_slots` cells. It is the layout as long as every sequence has room.
    **Unified**: one pool of cells, in which a row looks at everybody's cells. It is the layout
    while a sequence is longer than a stream.

    To change it the context is made anew, which takes about as long as to fill all cells. Where
    streams would wait longer than `--max-stall-ms` it waits until they ended.
    """

    def __init__(
        self, cells: Cells, backend: Backend, keeper: Keeper, running: list[Sequence], stats: Stats
    ) -> None:
        """running: the scheduler's own list, which is read here
        stats: the engine's own, which it adds to
        """
        self._cells = cells
        self._backend = backend
        self._keeper = keeper
        self._running = running
        self._stats = stats
        self._has_streams = backend.shape.stream_cells > 0

    @property
    def is_shared(self) -> bool:
        """Whether a sequence's cells are missing to the others."""
        return self._backend.unified

    def has_room(self, num_tokens: int) -> bool:
        """Whether one sequence can have so many tokens in this layout."""
        return num_tokens <= self._cells.pool.slot_cells

    def unify(self, *, now: bool = False) -> bool:
        """Change to the unified layout; False where streams would wait too long for it.

        now: the only stream that waits is the one that needs it
        """
        return self._change(unified=True, now=now)

    def consider_streams(self, waiting: Sequence | None) -> None:
        """Change back to streams once all fit into them; called before each step.

        waiting: the next one of the queue
        """
        if not self._backend.unified or not self._has_streams:
            return
        sequences = self._running if waiting is None else [*self._running, waiting]
        rooms = [min(s.num_known + RESERVE, s.limit) for s in sequences]
        if rooms and max(rooms) <= self._backend.shape.stream_cells:
            self._change(unified=False)

    def _change(self, *, unified: bool, now: bool = False) -> bool:
        """Make the cells anew; False where streams would wait too long, or it fails."""
        keeper, backend = self._keeper, self._backend
        held = sum(s.slot.length for s in self._running if s.slot is not None)
        if not now and keeper.holds_up(keeper.seconds(backend.shape.num_cells + 2 * held)):
            return False
        keeper.save_ended()
        try:
            indices = [s.slot.index for s in self._running if s.slot is not None]
            kept = backend.arrange(unified=unified, slots=indices)
        except BatchError:
            kept = set[int]()
            self._has_streams &= unified  # what fails is not tried before each step
        self._cells.rearrange(kept)
        self._stats.num_rearranged += 1
        return backend.unified == unified

    def close_gaps(self) -> None:
        """Move running streams next to each other.

        llama.cpp computes rows of streams that are not neighbours one after the other.
        To move them once takes less than a few such steps.
        """
        if self._backend.unified or len(self._running) < 2:
            return
        slots = [s.slot for s in self._running if s.slot is not None]
        places = [slot.index for slot in slots]
        count = len(places)
        if max(places) - min(places) < count:
            return
        first = min(range(len(self._cells.slots) - count + 1), key=lambda f: self._price(f, count))
        inside = range(first, first + count)
        movers = [slot for slot in slots if slot.index not in inside]
        if self._keeper.holds_up(self._keeper.seconds(sum(slot.length for slot in movers))):
            return
        gaps = [index for index in inside if not self._cells.slots[index].is_running]
        for slot, index in zip(movers, gaps, strict=True):
            self._cells.move(slot, index)

    def _price(self, first: int, count: int) -> int:
        """Tokens to move, and tokens that are lost, when the running slots begin at `first`."""
        price = 0
        for slot in self._cells.slots:
            if first <= slot.index < first + count:
                price += 0 if slot.is_running or slot.is_saved else slot.length
            elif slot.is_running:
                price += slot.length
        return price
