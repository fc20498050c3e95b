"""Who gets rows in the next step, and whose cells they may use."""

from __future__ import annotations

from collections import deque

from worker.engine.backend import Backend
from worker.engine.draft import Draft, StepCost, best_length
from worker.engine.kv import Cells, Slot
from worker.engine.pace import Pace
from worker.engine.sequence import Sequence

# Cells kept free for each running sequence at admission, so that it is not put back right away.
RESERVE = 16

Plan = list[tuple[Sequence, int]]


class Scheduler:
    """Queue and running set. One writer: the engine's step.

    waiting   first in, first out; a sequence that was put back goes to the front
    running   in order of admission, so the last one is the youngest
    num_preempted  times that `put_back` was called
    """

    def __init__(
        self,
        backend: Backend,
        max_running: int,
        max_stall: float,
        *,
        drafting: bool,
    ) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.cells = Cells(backend.num_cells, backend.num_slots)
        self.pace = Pace(max_stall, backend.batch.capacity)
        self.step_cost = StepCost()
        self.num_preempted = 0
        self._drafting = drafting and backend.cuts_tails
        self._backend = backend
        self._max_running = max_running
        self._clock = 0
        self._turns = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self.waiting and not self.running

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        if self._drafting and sequence.prompt_logprobs is None:
            sequence.draft = Draft()
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is; what it computed stays as cache."""
        if sequence.slot is None:
            self.waiting.remove(sequence)
            return
        self.running.remove(sequence)
        self._retire(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """Return a running sequence to the head of the queue; it keeps its tokens."""
        self.running.remove(sequence)
        self._retire(sequence)
        self._queue_again(sequence)
        self.num_preempted += 1

    def put_back_broken(self, sequence: Sequence) -> None:
        """As `put_back`, for a sequence whose cells are in an unknown state."""
        slot = self._slot(sequence)
        self.running.remove(sequence)
        self.cells.clear(slot)
        self._backend.drop(slot.index)
        self._queue_again(sequence)

    def _queue_again(self, sequence: Sequence) -> None:
        sequence.was_put_back = True
        self.waiting.appendleft(sequence)

    def computed(self, sequence: Sequence, count: int) -> None:
        """The step computed the sequence's next `count` tokens."""
        self.cells.grow(self._slot(sequence), count)
        sequence.num_computed += count

    def schedule(self, now: float) -> Plan:
        """(sequence, rows) for the next step: one row for each stream, then chunks of prompts.

        The youngest are put back into the queue when the others need their cells.
        """
        self._clock += 1
        self._admit(now)
        while True:
            for sequence in self.running:
                if sequence.leader is not None:
                    self._follow(sequence)
            plan = self._plan()
            if plan or not self.running:
                break
            if len(self.running) == 1:
                raise AssertionError(f"{self.running[0].id} alone gets no rows")
            self.put_back(self.running[-1])
        rows = sum(count for _, count in plan)
        while self.cells.num_free < rows:
            self._backend.drop(self.cells.evict())
        return plan

    def _plan(self) -> Plan:
        suspect = next((s for s in self.running if s.is_suspect), None)
        if suspect is not None:
            return self._chunks([suspect], 0)
        while True:
            streams = [s for s in self.running if s.num_missing == 1 and s.leader is None]
            if len(streams) <= self.cells.num_available or len(self.running) == 1:
                break
            self.put_back(self.running[-1])
        prompts = [s for s in self.running if s.num_missing > 1 and s.leader is None]
        if self._backend.one_prompt_a_step:
            prompts = prompts[:1]
        if prompts:
            return [*((s, 1) for s in streams), *self._chunks(prompts, len(streams))]
        streams = self._in_turn(streams)
        if self._drafting and streams:
            return self._with_drafts(streams)
        return [(s, 1) for s in streams]

    def _in_turn(self, streams: list[Sequence]) -> list[Sequence]:
        """The streams of a plain step: all, or an even part of those that wait the longest."""
        turns = -(-len(streams) // self._backend.plain_rows)
        if turns <= 1:
            return streams
        streams = sorted(streams, key=lambda sequence: sequence.last_turn)
        streams = streams[: -(-len(streams) // turns)]
        for sequence in streams:
            self._turns += 1
            sequence.last_turn = self._turns
        return streams

    def _with_drafts(self, streams: list[Sequence]) -> Plan:
        """Let streams verify as many guessed tokens as the measured cost of a step allows."""
        drafts = [s.draft for s in streams if s.draft is not None]
        for sequence in streams:
            if sequence.draft is not None:
                room = sequence.limit - sequence.num_known
                sequence.draft.guess(sequence.tokens, sequence.num_known, room)
        backend = self._backend
        rows = min(backend.plain_rows, backend.max_outputs, self.cells.num_available)
        length = best_length(drafts, len(streams), self.step_cost, rows)
        return [(s, 1 + min(length, len(s.draft.tokens) if s.draft else 0)) for s in streams]

    def _chunks(self, prompts: list[Sequence], num_streams: int) -> Plan:
        """Share what is left of the step among the prompts, evenly; what one leaves others take."""
        backend = self._backend
        rows = min(backend.batch.capacity, self.cells.num_available) - num_streams
        rows = min(rows, self.pace.prompt_rows(num_streams))
        outputs = backend.max_outputs - num_streams
        plan: Plan = []
        for index, sequence in enumerate(prompts):
            share = -(-rows // (len(prompts) - index))
            count = min(sequence.num_missing, share)
            if sequence.prompt_logprobs is not None:
                count = min(count, outputs)
                outputs -= count
            else:
                count = count if outputs else min(count, sequence.num_missing - 1)
                outputs -= count == sequence.num_missing
            if count > 0:
                plan.append((sequence, count))
                rows -= count
        return plan

    def _admit(self, now: float) -> None:
        """Move sequences from the queue into slots while their known tokens fit."""
        while self.waiting and len(self.running) < self._max_running and self.cells.has_slot:
            sequence = self.waiting[0]
            source, common = self._match(sequence)
            needed = self.cells.num_live + sequence.num_known - common + RESERVE
            needed += sum(s.num_unshared + RESERVE for s in self.running)
            if source is not None:
                needed += self.cells.num_idle(source, common)
            if self.running and needed > self.cells.num_cells:
                return
            self.waiting.popleft()
            self._place(sequence, source, common)
            if not sequence.was_put_back:
                sequence.admitted_at = now
            self.running.append(sequence)

    def _match(self, sequence: Sequence) -> tuple[Slot | None, int]:
        """The slot to share from and how many tokens; one token is left, it gives the logits."""
        # Where every row's logits are wanted every row is computed; a suspect depends on nobody.
        if sequence.prompt_logprobs is not None or sequence.is_suspect:
            return None, 0
        known = sequence.tokens[: sequence.num_known - 1]
        return self.cells.longest_prefix(known, self._is_useful)

    def _is_useful(self, slot: Slot, common: int) -> bool:
        """Whether a sequence can go on from the first `common` tokens that a slot knows."""
        if not self._backend.cuts_tails:
            # A state that cannot be cut back is of use as a whole or not at all.
            return slot.owner is None and common == slot.length
        computed = min(common, slot.length)
        return not computed or self._backend.holds(slot.index, 0, computed)

    def _place(self, sequence: Sequence, source: Slot | None, common: int) -> None:
        """Give the sequence a slot that holds what is there already of its tokens."""
        cells, backend = self.cells, self._backend
        if source is not None and source.owner is None:
            cells.touch(source, self._clock)
            # Nothing of it is left over, or no other slot is left: take it as it is.
            if common == source.length or not cells.num_slots_besides(source):
                if common < source.length:
                    cells.cut(source, common)
                    backend.drop(source.index, common)
                cells.adopt(source, sequence)
                sequence.found(common)
                return
        evicted = cells.take(sequence)
        if evicted is not None:
            backend.drop(evicted)
        sequence.num_computed = 0
        if source is not None:
            sequence.leader, sequence.leader_tokens = source, source.tokens
            sequence.follow_until = common
            self._follow(sequence)  # at once: the next admission may evict the source

    def _follow(self, sequence: Sequence) -> None:
        """Share with a sequence what the one that it follows has computed by now."""
        leader, slot = sequence.leader, self._slot(sequence)
        if leader.tokens is sequence.leader_tokens:
            stop = min(leader.length, sequence.follow_until)
            # Where the leader ran ahead its sliding window may have left this place already.
            if stop > slot.length and self._backend.holds(leader.index, slot.length, stop):
                self._backend.share(leader.index, slot.index, slot.length, stop)
                self.cells.share(leader, slot, stop)
                sequence.found(stop)
            if slot.length == stop < sequence.follow_until and leader.owner is not None:
                return  # it is being computed for both
        sequence.leader = sequence.leader_tokens = None

    def _retire(self, sequence: Sequence) -> None:
        """Take the sequence's slot back and keep what it holds, unless another holds it too."""
        slot = self._slot(sequence)
        sequence.num_computed = 0
        sequence.leader = sequence.leader_tokens = None
        self.cells.retire(slot, self._clock)
        if not self._backend.cuts_tails:
            return  # a shorter whole state is no duplicate: it cannot be had from a longer one
        for redundant in self.cells.redundant(slot):
            self.cells.clear(redundant)
            self._backend.drop(redundant.index)

    def _slot(self, sequence: Sequence) -> Slot:
        if sequence.slot is None:
            raise AssertionError(f"{sequence.id} holds no slot")
        return self.cells.slots[sequence.slot]

    def evict_all(self) -> bool:
        """Empty all cached slots; False when there was none."""
        found = bool(self.cells.cached)
        while self.cells.cached:
            self._backend.drop(self.cells.evict())
        return found

    def check_integrity(self) -> None:
        """Raise AssertionError when the books do not add up."""
        self.cells.check_integrity()
        for sequence in self.running:
            slot = self._slot(sequence)
            if slot.owner is not sequence or slot.length != sequence.num_computed:
                raise AssertionError(
                    f"{sequence.id}: {sequence.num_computed} computed, slot holds {slot.length}"
                )
        stray = [s.id for s in self.waiting if s.slot is not None]
        if stray:
            raise AssertionError(f"waiting sequences hold slots: {stray}")
