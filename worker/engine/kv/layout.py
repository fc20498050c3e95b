"""Which layout the KV cache has, for which attention, and where in it running sequences stand."""

from __future__ import annotations

import math
from collections.abc import Callable

from worker.engine.backend import Backend, BatchError
from worker.engine.kv.attention import Attention
from worker.engine.kv.cells import Cells
from worker.engine.kv.keeper import Keeper
from worker.engine.sequence import Sequence
from worker.engine.stats import Stats
from worker.engine.steps.plan import StepPlan

_NEW = 0.5
# What changes cost beside busy neighbours is forgotten in so many seconds of steps: after an hour
# beside three servers a change was taken to cost more than streams may wait, and the cells stayed
# unified for good (eight streams of a 125M shape at 0.92 of llama-server).
_FORGET_S = 60.0
# Until the first change is measured. 125M shape, 16,384 cells: 0.13 s; Llama-1B, 8,192: 0.17 s.
_FIRST_CHANGE_S = 0.2
# Tokens that a sequence must have left in a stream, for a change to streams.
_SOON = 64


class Layout:
    """Chooses between two layouts of the KV cache, and closes gaps between streams.

    **Streams**: each slot has cells of its own, and a row looks at its own cells only. A slot
    can have `num_cells / num_slots` cells. It is the layout as long as every sequence has room.
    **Unified**: one pool of cells, in which a row looks at everybody's cells. It is the layout
    while a sequence is longer than a stream, and until the streams have lost as much time by it as
    another change costs: a single long conversation does not change the layout in every turn. Where
    streams would have to wait too long for a change, it comes before the next one begins.

    Attention is fused, or plain where that is faster (`Attention`) and each row looks at its own
    cells only.

    To change it the context is made anew, which takes about 0.15 s (most of it to fill the cells
    with zeros). Where streams would wait longer than `--max-stall-ms` it waits until they ended.
    """

    def __init__(
        self,
        cells: Cells,
        backend: Backend,
        keeper: Keeper,
        running: list[Sequence],
        clock: Callable[[], float],
        stats: Stats,
    ) -> None:
        """running: the scheduler's own list, which is read here
        stats: the engine's own, which it adds to
        """
        self._cells = cells
        self._backend = backend
        self._keeper = keeper
        self._running = running
        self._clock = clock
        self._stats = stats
        self._change_s = _FIRST_CHANGE_S
        self._least_change_s = math.inf  # that was measured
        self._lost_s = 0.0
        self.attention = Attention() if backend.chooses_attention else None

    @property
    def is_shared(self) -> bool:
        """Whether a sequence's cells are missing to the others."""
        return self._backend.unified

    def has_room(self, num_tokens: int) -> bool:
        """Whether one sequence can have so many tokens in this layout."""
        return num_tokens <= self._cells.slot_cells

    def unify(self, *, now: bool = False) -> bool:
        """Change to the unified layout; False where streams would wait too long for it.

        now: the only stream that waits is the one that needs it
        """
        return self._change(unified=True, now=now)

    def consider_streams(self, longest_waiting: int) -> None:
        """Change back to streams where it pays; called before each step.

        longest_waiting: tokens that the next sequence of the queue needs; 0: nobody waits
        """
        backend = self._backend
        if not backend.unified or not backend.stream_cells or len(self._running) == 1:
            return
        lengths = [s.num_known for s in self._running]
        soon = [min(s.limit, s.num_known + _SOON) for s in self._running]
        if max([longest_waiting, *soon]) > backend.stream_cells:
            self._lost_s = 0.0
            return
        # A stream alone would look at the cells of the longest one, in streams too.
        foreign = sum(lengths) - max(lengths, default=0)
        self._lost_s += len(lengths) * foreign * backend.scan_seconds
        if self._lost_s > self._change_s:
            self._change(unified=False)

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """Learn what a step like this takes with attention as it is now.

        Not from steps that write and read, or that read several prompts: no two are alike.
        """
        if self._change_s > self._least_change_s:
            share = min(1.0, seconds / _FORGET_S)
            self._change_s += share * (self._least_change_s - self._change_s)
        if self.attention is None or (plan.prompt_rows and len(plan.runs) > 1):
            return
        batch = self._backend.batch
        self.attention.observe(
            fused=self._backend.fused,
            rows=batch.size,
            position=int(batch.positions[: batch.size].max()),
            seconds=seconds,
            is_prompt=plan.prompt_rows > 0,
        )

    def consider_attention(self) -> None:
        """Compute attention the other way where it pays; called before each step."""
        attention, backend = self.attention, self._backend
        if attention is None or not attention.wants_change(self._change_s):
            return
        if not self._is_own(unified=backend.unified):
            return
        if attention.wants_change(self._change_s + self._copying_s):
            self._change(unified=backend.unified, fused=not backend.fused)

    @property
    def _copying_s(self) -> float:
        """Seconds in which what runs is copied out of the cells and back."""
        held = sum(s.slot.length for s in self._running if s.slot is not None)
        return 2 * self._keeper.seconds(held)

    def _is_own(self, *, unified: bool) -> bool:
        """Whether a row looks at its own sequence's cells only."""
        return not unified or self._backend.num_slots == 1

    def _change(self, *, unified: bool, fused: bool | None = None, now: bool = False) -> bool:
        """Make the cells anew; False where streams would wait too long, or it fails.

        fused: None leaves attention as it is, where the layout allows that
        """
        copying = self._copying_s
        if not now and self._keeper.holds_up(self._change_s + copying):
            return False
        self._keeper.save_ended()
        before = self._backend.fused
        if fused is None:
            fused = before or not self._is_own(unified=unified)
        started = self._clock()
        try:
            indices = [s.slot.index for s in self._running if s.slot is not None]
            kept = self._backend.arrange(unified=unified, slots=indices, fused=fused)
        except BatchError:
            kept = set[int]()
        self._cells.rearrange(kept)
        # One change beside a busy neighbour must not forbid all that come after it.
        seconds = max(0.0, self._clock() - started - copying)
        self._change_s += _NEW * (min(seconds, 2 * self._change_s) - self._change_s)
        self._least_change_s = min(seconds, self._least_change_s)
        self._lost_s = 0.0
        self._stats.num_rearranged += 1
        if self.attention is not None and fused != before:
            if self._backend.fused == fused:
                self.attention.changed()
            else:
                self.attention.failed()
        return self._backend.unified == unified

    def close_gaps(self) -> None:
        """Move running streams next to each other.

        llama.cpp computes rows of streams that are not neighbours one after the other: four of
        eight streams take 29 ms, side by side 17 (125M shape). To move 700 tokens takes 2.4 ms.
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
