"""Who gets rows in the next step, and who waits."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec

from worker.cache.store import Store
from worker.engine.backend import Backend
from worker.engine.cost import StepCost
from worker.engine.drafts.guesser import Guesser
from worker.engine.kv.cells import Cells
from worker.engine.kv.ends import PromptEnds
from worker.engine.kv.keeper import Keeper
from worker.engine.kv.layout import Layout
from worker.engine.kv.prefix import Match, Prefixes
from worker.engine.order import Order
from worker.engine.plan import Planner, StepPlan, Turns
from worker.engine.scoring import ScoredSequence
from worker.engine.sequence import RESERVE, Sequence
from worker.engine.slot import Slot
from worker.engine.spare import SpareTime
from worker.engine.stats import Stats

# Sequences of the queue whose beginnings are compared with that of one which begins to run.
_LOOKED_AT = 8
# What --max-stall is divided by in steps with lines of batches: who comes waits for one of these.
_SHORTER = 4


class Scheduler:
    """Queue and running set, over the KV cache. The engine's thread calls everything.

    order     the queue, which says who comes first
    running   in order of admission, so the last one is the youngest
    stuck     a waiting sequence that cannot run, although nobody else does
    ends      logits behind whole prompts
    only_writes  the last step read no part of a prompt, and nobody waited but lines of batches
    """

    def __init__(
        self,
        backend: Backend,
        max_running: int,
        max_stall: float,
        clock: Callable[[], float],
        store: Store | None,
        cost: StepCost,
        guesser: Guesser | None,
        stats: Stats,
    ) -> None:
        """cost, guesser, stats: the engine's own, which learn and grow here"""
        self.order = Order(clock)
        self.running: list[Sequence] = []
        self.stuck: Sequence | None = None
        self.cells = Cells(backend)
        self.keeper = Keeper(self.cells, backend, store, self.running, clock, max_stall)
        self.ends = PromptEnds(backend)
        self.prefixes = Prefixes(self.cells, backend, self.keeper, self.ends, stats)
        self.layout = Layout(self.cells, backend, self.keeper, self.running, stats)
        self.cost = cost
        self.only_writes = False
        self._backend = backend
        self._max_running = max_running
        self._stats = stats
        self._guesser = guesser
        self._planner = Planner(backend, cost, max_stall, guesser)
        self._turns = Turns(max_stall)
        self._spare = SpareTime(cost)
        self._is_awaited = False  # streams that are no lines of batches wait for the step
        self._lone: Sequence | None = None  # the only one with rows, if all others are lines

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, nothing runs and everything that ended is saved."""
        return not self.order and not self.running and not self.keeper.has_work

    def add(self, sequence: Sequence) -> None:
        if self._guesser is not None and not isinstance(sequence, ScoredSequence):
            sequence.draft = self._guesser.new_draft(sequence)
        self.order.add(sequence)
        self._lone = None

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is; what it computed stays as cache."""
        if sequence is self.stuck:
            self.stuck = None
        self.order.end(sequence, ran=sequence.slot is not None)
        if sequence.slot is not None:
            slot = self._take_slot(sequence)
            self.cells.retire(slot)
            if isinstance(sequence, ScoredSequence):
                self.prefixes.shorten(sequence, slot)
            elif self._guesser is not None:
                self._guesser.forget(sequence)

    def discard(self, sequence: Sequence) -> None:
        """Forget a sequence and what it computed: nobody knows what its cells hold."""
        if sequence.slot is None:
            self.remove(sequence)
        else:
            self.order.end(sequence, ran=True)
            self.cells.clear(self._take_slot(sequence))

    def empty(self) -> None:
        """Save what ended, and forget what all slots hold, in the layout that there is now."""
        self.keeper.save_ended()
        self.cells.rearrange(())
        self.ends.forget()
        self._stats.num_emptied += 1
        if self._guesser is not None:
            self._guesser.empty()

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """Learn what a step like this costs."""
        self.only_writes = not plan.prompt_rows and not self.order.has_others
        if self._is_awaited and self.order.has_batches:
            self._spare.note(plan, seconds)
        rows = plan.decode_rows + len(plan.padding)
        if plan.ahead_rows:  # nothing is chosen from them
            return
        if self._guesser is not None and plan.decode_rows > len(plan.runs):
            self._guesser.charge(plan.runs, seconds)
        self.cost.observe(rows, plan.prompt_rows, seconds, num_waiting=plan.num_waiting)

    def put_back(self, sequence: Sequence) -> None:
        """Return a running sequence to the head of the queue; it keeps its tokens."""
        self.queue_again(sequence)
        self._stats.num_preempted += 1
        self._stats.longest = max(self._stats.longest, sequence.num_known)

    def queue_again(self, sequence: Sequence) -> None:
        """The same for one that takes tokens back: what it computed stays as cache."""
        self.cells.retire(self._take_slot(sequence))
        self._queue_again(sequence)

    def admit(self, now: float) -> list[Sequence]:
        """Who waits gets slots, and what moves between cells and memory moves here, between two
        steps. Those of which others have computed all: their `end` gives their next token."""
        self.keeper.begin()
        if self._lone is not None and self._writes_on(self._lone):
            return []
        self._lone = None
        self.keeper.save_marked()
        self.keeper.save_ended()
        self._find_room()
        self.prefixes.follow_all()
        self._admit(now)
        self.keeper.clear_ended()
        return self._ready

    def schedule(self, now: float) -> StepPlan:
        """What the next step computes, after `admit`; no runs where nobody is there.

        Who comes last is put back into the queue when the others need its cells.
        """
        if self._lone is not None:
            plan = self._planner.plan([self._lone], [], self.cells.num_available)
            self.cells.make_room(plan.num_rows)
            return self._pad(plan)
        while True:
            self.layout.close_gaps()
            plan = self._plan(now)
            if plan.runs or not self.running or self._ready:
                break
            if len(self.running) == 1:
                raise AssertionError(f"{self.running[0].id} alone gets no rows")
            self.put_back(self.order.last(self.running))
            self.keeper.save_ended()
            self.prefixes.follow_all()
        self.cells.make_room(plan.num_rows)
        self._lone = self._lone_of(plan)
        return self._pad(plan)

    @property
    def _ready(self) -> list[Sequence]:
        return [s for s in self.running if s.end is not None and not s.num_missing]

    def _lone_of(self, plan: StepPlan) -> Sequence | None:
        """The only one with rows, if those without wait for it and whoever comes."""
        if len(plan.runs) != 1:
            return None
        sequence = plan.runs[0][0]
        has_others = any(s is not sequence and not s.is_batch for s in self.running)
        return None if has_others else sequence

    def _writes_on(self, sequence: Sequence) -> bool:
        """Whether the only stream has written alone, and there is nothing to do but to go on: no
        line of a batch joins it.

        Behind a decode, which empties the CPU's caches, to look after all else takes 28 µs, and
        another 90 µs beside 14 lines.
        """
        if not self.only_writes or self.order.has_others or self.keeper.has_work:
            return False
        if (len(self.running) > 1 or self.order) and (sequence.is_batch or self._spare.is_there):
            return False
        slot = sequence.slot
        return (
            sequence.num_missing == 1
            and not sequence.is_suspect
            and slot is not None
            and not slot.marks
            and not self._backend.unified
            and self.layout.has_room(sequence.num_known)
            and not self.prefixes.is_following(sequence)
        )

    def _pad(self, plan: StepPlan) -> StepPlan:
        """The plan with rows that nobody reads, where a whole block of rows takes less time.

        Only for rows of one token each, and for states that forget such a row without a trace.
        """
        rows = plan.decode_rows
        missing = self._backend.kernels.num_padding(rows)
        is_uneven = plan.prompt_rows or rows != len(plan.runs)
        if not missing or is_uneven or self._backend.shape.needs_rest:
            return plan
        if rows + missing > self._planner.most_rows:
            return plan
        spare = self.cells.spare_slots(missing, rows)
        return msgspec.structs.replace(plan, padding=tuple(spare)) if spare else plan

    def _find_room(self) -> None:
        """Give sequences that outgrow the layout another one, or put them back until they can."""
        self.layout.consider_streams(self.order.next())
        for sequence in reversed(self.running):
            alone = len(self.running) == 1
            if not self.layout.has_room(sequence.num_known) and not self.layout.unify(now=alone):
                self.put_back(sequence)
                self.keeper.save_ended()

    def relieve(self) -> Sequence | None:
        """Make room where the cache is fuller than the books say, so that the step can be retried.

        Evicts all that is cached, or else puts back who comes last. Returns the only sequence left
        where neither is possible: it cannot go on.
        """
        if self.cells.cached:
            while self.cells.cached:
                self.cells.evict()
            return None
        last = self.order.last(self.running)
        if len(self.running) == 1:
            return last
        self.put_back(last)
        return None

    def isolate(self, plan: StepPlan) -> Sequence | None:
        """The batch of `plan` failed for good: put all back, and run each alone from now on.

        Returns the sequence that ran alone already and so is the one at fault.
        """
        runs = plan.runs
        guilty = runs[0][0] if len(runs) == 1 and runs[0][0].is_suspect else None
        for sequence, count in reversed(runs):
            sequence.suspect_until = min(sequence.num_computed + count, sequence.num_known)
            self.cells.clear(self._take_slot(sequence))  # nobody knows what its cells hold now
            self._queue_again(sequence)
        return guilty

    def _admit(self, now: float) -> None:
        """Move sequences from the queue into slots while their known tokens fit, or others make
        way."""
        while (sequence := self.order.next()) is not None:
            while (match := self._place_for(sequence)) is None:
                if not self._make_way(sequence):
                    return
            self.order.admit(sequence)
            coming = itertools.islice(self.order, _LOOKED_AT)
            sequence.slot = self.prefixes.slot_for(sequence, match, self.running, coming)
            self.prefixes.follow(sequence)  # at once: the next one may evict what it shares
            if not sequence.was_put_back:
                sequence.admitted_at = now
                if sequence.is_counted:  # a request that scores has one wait, its first
                    waited = now - sequence.submitted_at
                    self._stats.queue_time = self._stats.queue_time.plus(waited)
            self.running.append(sequence)

    def _place_for(self, sequence: Sequence) -> Match | None:
        """What is known of a sequence, if it can have a slot and cells now; else None."""
        cells, prefixes = self.cells, self.prefixes
        if len(self.running) >= self._max_running:
            return None
        # Lines of batches leave one slot: who comes next need not wait until a state is put aside.
        if sequence.is_batch:
            num_lines = sum(each.is_batch for each in self.running)
            if num_lines >= max(1, self._max_running - 1):
                return None
        room = min(sequence.num_known + RESERVE, sequence.limit)
        if not self.layout.has_room(room) and not self.layout.unify():
            if not self.running:
                self.stuck = sequence
            return None
        match = prefixes.match(sequence, self.running)
        if self.running and self.layout.is_shared:
            needed = cells.pool.num_live + sequence.num_known + RESERVE
            needed += sum(prefixes.num_unshared(s) + RESERVE for s in self.running)
            if match.slot is not None:
                needed += cells.pool.num_idle(match.slot, match.num_tokens) - match.num_tokens
            if needed > cells.pool.num_cells:
                return None
        return match

    def _make_way(self, sequence: Sequence) -> bool:
        """Put aside the state of one that runs and comes behind this one; whether there was one.

        Where there is no room for it a line of a batch makes way all the same, and is computed
        again.
        """
        rival = self.order.rival(sequence, self.running)
        if rival is None:
            return False
        if not self.keeper.put_aside(_slot_of(rival)) and (sequence.is_batch or not rival.is_batch):
            return False
        self.put_back(rival)
        return True

    def _plan(self, now: float) -> StepPlan:
        """Rows for those that run, as long as each stream can have a cell for its next token."""
        suspect = next((s for s in self.running if s.is_suspect), None)
        if suspect is not None:
            return self._planner.plan([], [suspect], self.cells.num_available)
        streams, prompts, others = self._split(now)
        while len(streams) > self.cells.num_available and len(self.running) > 1:
            self.put_back(self.order.last(self.running))
            streams, prompts, others = self._split(now)
        plan = self._planner.plan(
            streams,
            prompts,
            self.cells.num_available,
            num_others=others,
            num_turns=max(1, self._turns.num_others) * (_SHORTER if self.order.has_batches else 1),
            is_awaited=self._is_awaited or not self.order.has_batches,
        )
        if self.order.is_shared and plan.runs:
            self.order.charge(plan.runs)
        return plan

    def _split(self, now: float) -> tuple[list[Sequence], list[Sequence], int]:
        """Running sequences whose turn it is, by account and by key, that wait for a token; those
        that have more to compute; and how many others wait for a token."""
        is_following = self.prefixes.is_following
        active = [
            s for s in self.running if not is_following(s) and (s.end is None or s.num_missing)
        ]
        lines = list[Sequence]()
        if self.order.has_batches:
            active, lines = self._apart(active)
        streams: list[Sequence] = []
        prompts: list[Sequence] = []
        others = 0
        if self.order.is_shared:
            everybody, active = active, self.order.in_turn(active)
            others = sum(s.is_stream for s in everybody) - sum(s.is_stream for s in active)
        active += lines
        turns = [s.turn for s in active]
        turn = self._turns.next(turns, now) if turns else b""
        for sequence, its in zip(active, turns, strict=True):
            if its == turn:
                (streams if sequence.is_stream else prompts).append(sequence)
            else:
                others += sequence.is_stream
        return streams, prompts, others

    def _apart(self, active: list[Sequence]) -> tuple[list[Sequence], list[Sequence]]:
        """Those that share the step by account, and lines of batches that join them: where others
        run none, unless they cost little."""
        others = [s for s in active if not s.is_batch or self.prefixes.is_awaited(s)]
        self._is_awaited = bool(others)
        if not others:
            return active, []
        if not self._spare.is_there or not all(s.is_stream for s in others):
            return others, []
        return others, [s for s in active if s not in others]

    def _take_slot(self, sequence: Sequence) -> Slot:
        """A running sequence runs no longer; the slot that it had."""
        slot = _slot_of(sequence)
        self._lone = None
        self.running.remove(sequence)
        self.prefixes.leave(sequence)
        sequence.slot = None
        return slot

    def _queue_again(self, sequence: Sequence) -> None:
        sequence.was_put_back = True
        self.order.put_back(sequence)

    def check_integrity(self) -> None:
        """Raise AssertionError when the books do not add up."""
        self.cells.check_integrity()
        self.prefixes.check_integrity(self.running)
        held = [_slot_of(sequence) for sequence in self.running]
        for sequence, slot in zip(self.running, held, strict=True):
            if slot.tokens is not sequence.tokens or slot.length >= sequence.num_known:
                raise AssertionError(
                    f"{sequence.id}: {sequence.num_known} known, slot {slot.index} "
                    f"holds {slot.length}"
                )
        if sorted(s.index for s in held) != [s.index for s in self.cells.slots if s.is_running]:
            raise AssertionError(f"{len(held)} sequences run, but their slots do not")
        stray = [s.id for s in self.order if s.slot is not None]
        if stray:
            raise AssertionError(f"waiting sequences hold slots: {stray}")


def _slot_of(sequence: Sequence) -> Slot:
    if sequence.slot is None:
        raise AssertionError(f"{sequence.id} holds no slot")
    return sequence.slot
