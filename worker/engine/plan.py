"""Which rows a step computes, once it is known who runs."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from worker.engine.backend import Backend
from worker.engine.cost import StepCost, chunk_rows
from worker.engine.drafts.guesser import Guesser
from worker.engine.sequence import Sequence
from worker.engine.slot import Slot

Runs = list[tuple[Sequence, int]]


class StepPlan(msgspec.Struct, frozen=True):
    """What a step computes: for each sequence in `runs` so many of its next tokens.

    decode_rows  rows of sequences that wait for a token, guessed tokens included
    ahead_rows   of these rows, tokens that are known, and behind which another known one comes
    prompt_rows  all other rows
    num_waiting  sequences that wait for a token and have no row in a step that reads prompts
    padding      slots beside those that run, each with a row that nobody reads, after all others
    filling      rows of the only run, its last ones, that nobody reads, see `Replay`
    """

    runs: Runs
    decode_rows: int
    prompt_rows: int
    num_waiting: int = 0
    ahead_rows: int = 0
    padding: tuple[Slot, ...] = ()
    filling: int = 0

    @property
    def num_rows(self) -> int:
        return self.decode_rows + self.prompt_rows


# With fewer cells than this in the streams, a step of them and a prompt costs no more than two
# steps. 125M shape, 7 streams and a chunk of 64, CPU ms in one step and in two, by cells of each
# stream: 24 cells 81 and 79, 64 cells 94 and 82, 256 cells 178 and 104, 700 cells 460 and 154.
FEW_CELLS = 512
# Where streams leave a prompt fewer rows than this in a step that is cheap, they take turns.
_FEW_ROWS = 16
# A prompt that misses at most this share of the one that is due has every second turn. Two of 8,000
# tokens once made one of 93 wait until both were read.
_SHORT = 0.25


class Planner:
    """Shares a step's rows among streams and prompts, by what steps cost.

    Changes nothing but turns and guesses, and whose step is next where streams and prompts take
    turns.
    """

    def __init__(
        self, backend: Backend, cost: StepCost, max_stall: float, guesser: Guesser | None
    ) -> None:
        self._backend = backend
        self._cost = cost
        self._max_stall = max_stall
        self._guesser = guesser
        self._turns = 0
        self._num_read = 0  # tokens of prompts
        self._rows_ahead = 0  # of prompts since a step of streams, where they take turns
        self._short_next = True

    def plan(
        self,
        streams: list[Sequence],
        prompts: list[Sequence],
        num_available: int,
        *,
        num_others: int = 0,
        num_turns: int = 1,
        is_awaited: bool = True,
    ) -> StepPlan:
        """One row for each stream, then chunks of prompts; guesses where there are no prompts.

        Where one step for both would be dearer than two, streams and prompts take turns. Where
        nobody waits for the streams, all prompts come first: their turn has a tile for each
        sequence, so that no stream waits for ever.

        streams: sequences that wait for a token; prompts: those with more to compute
        num_available: cells that the step may fill, at least one for each stream
        num_others: sequences that wait for a token, and cannot have it in this step
        num_turns: steps like this one that they may have to wait for
        is_awaited: somebody waits for the streams' tokens; not so where all are lines of batches
        """
        if not prompts:
            if not is_awaited:
                self._rows_ahead = 0
            return self._plain(streams, num_available)
        backend, count = self._backend, len(streams)
        is_alone = not streams and not num_others and len(prompts) == 1
        prompts, is_contested = self._in_turns(prompts)
        if self._one_prompt:
            prompts = prompts[:1]
        capacity, room = backend.batch.capacity, num_available - count
        rows = backend.kernels.piece
        if streams or num_others:
            rows = self._chunk_rows(count + num_others, num_turns, alone=not streams)
        medium = prompts[0].medium
        if medium is not None and not medium.is_causal:  # it has the step for itself
            rows = capacity if len(medium.vectors) <= room else 0
        rows = min(rows, capacity - count, room)
        if streams and self._is_dear(streams, prompts, rows):
            alone = self._chunk_rows(count + num_others, num_turns, alone=True)
            if not is_awaited:
                missing = prompts[0].num_missing
                alone = self._unawaited_rows(count + num_others, num_turns, missing)
            alone = min(alone, capacity, room)
            cheap, tile = backend.kernels.mixed - count, backend.kernels.tile
            if backend.unified and alone < tile and cheap >= _FEW_ROWS:  # no step of its own
                rows = min(rows, cheap)
            else:
                turn = 1 if is_awaited else tile * (count + len(prompts))
                if self._rows_ahead >= turn:
                    self._rows_ahead = 0
                    return self._plain(streams, num_available)
                self._rows_ahead += max(1, alone)
                rows, streams = alone, []
        chunks = self._chunks(prompts, len(streams), rows)
        filling = self._replay(chunks, rows) if is_alone else 0
        prompt_rows = sum(chunk for _, chunk in chunks)
        self._num_read += prompt_rows
        self._short_next ^= is_contested
        runs = self._in_order([*((s, 1) for s in streams), *chunks])
        num_waiting = count - len(streams) + num_others
        return StepPlan(runs, len(streams), prompt_rows, num_waiting, filling=filling)

    def _plain(self, streams: list[Sequence], num_available: int) -> StepPlan:
        most = self.most_rows
        if len(streams) > most:
            streams = self._in_turn(streams, most)
        room = min(most, num_available) - len(streams)
        if len(streams) > 1:
            room = min(room, self._chunk_rows(len(streams), 1))
        ahead, ahead_rows = self._ahead(streams, room), 0
        if ahead:
            ahead_rows = sum(count for _, count in ahead)
            streams = [s for s in streams if s.num_missing == 1]
        if self._guesser is None or not streams:
            runs = [(s, 1) for s in streams]
        else:
            runs = self._with_guesses(self._guesser, streams, num_available, ahead_rows)
        runs = self._in_order(ahead + runs)
        return StepPlan(runs, sum(count for _, count in runs), 0, ahead_rows=ahead_rows)

    @property
    def _one_prompt(self) -> bool:
        return self._backend.unified and self._backend.shape.one_prompt

    def _ahead(self, streams: list[Sequence], room: int) -> Runs:
        """All rows of those whose next tokens are known, as far as there is room."""
        runs: Runs = []
        for sequence in streams:
            missing = sequence.num_missing
            if missing > 1:
                is_alone = not runs or not self._one_prompt
                more = min(missing - 1, room) if is_alone else 0
                runs.append((sequence, _cut(sequence, 1 + max(0, more))))
                room -= runs[-1][1] - 1
        return runs

    def _in_order(self, runs: Runs) -> Runs:
        """By slot where each has a stream: rows that are not in order are computed one by one."""
        if len(runs) > 1 and not self._backend.unified:
            runs.sort(key=_index)
        return runs

    @property
    def most_rows(self) -> int:
        """Rows that several sequences share a step with at most; streams have no such limit."""
        backend = self._backend
        capacity = backend.batch.capacity
        return min(capacity, backend.kernels.mixed) if backend.unified else capacity

    def _chunk_rows(self, decode_rows: int, num_turns: int, *, alone: bool = False) -> int:
        capacity, stall = self._backend.batch.capacity, self._max_stall / num_turns
        return chunk_rows(self._cost, decode_rows, stall, capacity, alone=alone)

    def _unawaited_rows(self, decode_rows: int, num_turns: int, missing: int) -> int:
        """Rows of a step of prompts alone, as long as who comes may wait for its end; and what is
        left of the first prompt, which misses so many, if that is little."""
        block, piece = self._backend.kernels.block, self._backend.kernels.piece
        rows = min(self._chunk_rows(decode_rows, num_turns), piece)
        rows = max(block, rows - rows % block)
        return missing if rows < missing <= rows + block // 2 else rows

    def _is_dear(self, streams: list[Sequence], prompts: list[Sequence], rows: int) -> bool:
        """Whether a step for both costs more than two steps.

        So where the prompts' rows would be computed against many cells of the streams. In the
        layout of streams llama.cpp splits such a batch: one part has a row of each, the other has
        the rest of the prompt, in a number that its kernels do not like.
        """
        if not self._backend.unified:
            return True
        rows = min(rows, sum(sequence.num_missing for sequence in prompts))
        if rows <= 0 or len(streams) + rows <= self._backend.kernels.mixed:
            return False
        return sum(sequence.num_known for sequence in streams) > FEW_CELLS

    def _in_turn(self, streams: list[Sequence], most: int) -> list[Sequence]:
        """Of more streams than `most` an even part, of those that wait the longest."""
        turns = -(-len(streams) // most)
        streams = sorted(streams, key=_last_turn)
        streams = streams[: -(-len(streams) // turns)]
        for sequence in streams:
            self._turns += 1
            sequence.last_turn = self._turns
        return streams

    def _with_guesses(
        self, guesser: Guesser, streams: list[Sequence], num_available: int, taken: int
    ) -> Runs:
        """Let streams verify as many guessed tokens as the measured cost of a step allows.

        taken: rows of others
        """
        backend = self._backend
        slot_cells = backend.shape.num_cells if backend.unified else backend.shape.stream_cells
        rows = min(self.most_rows, backend.batch.max_outputs, num_available) - taken
        if not backend.shape.cuts_tails and (taken or len(streams) > 1):
            # llama.cpp computes runs of other lengths apart, and moves states in between: not those
            # before the last one, to which a wrong guess goes back.
            rows = len(streams)
        counts = guesser.counts(streams, slot_cells, rows)
        if not backend.shape.cuts_tails:
            counts = map(_cut, streams, counts)
        return list(zip(streams, counts, strict=True))

    def _in_turns(self, prompts: list[Sequence]) -> tuple[list[Sequence], bool]:
        """In the order of reading; and whether a much shorter one takes turns with who is due."""
        prompts = sorted(prompts, key=self._due)
        shortest = min((s for s in prompts if s.worth == prompts[0].worth), key=_num_missing)
        is_contested = shortest.num_missing <= _SHORT * prompts[0].num_missing
        if is_contested and self._short_next:
            prompts.remove(shortest)
            prompts.insert(0, shortest)
        return prompts, is_contested

    def _due(self, sequence: Sequence) -> tuple[int, int]:
        """Who is due first is read first: tokens read when it came, and those that it misses. Those
        of a lower worth, see `Order`, come before.

        So prompts of the same length follow each other, and a short one overtakes a long one until
        as many tokens have been read as the long one has: everybody's turn comes.
        """
        if sequence.due is None:
            sequence.due = self._num_read + sequence.num_missing
        return sequence.worth, sequence.due

    def _replay(self, chunks: Runs, most: int) -> int:
        """Let the only sequence go on behind what another worker wrote in the steps that it was
        written in, where that decides how it goes on: greedily. How many rows of the step only
        fill it."""
        for place, (sequence, count) in enumerate(chunks):
            given = sequence.num_prompt <= sequence.num_computed < sequence.num_given
            if (
                not given
                or sequence.is_suspect
                or sequence.replay is None
                or not sequence.is_greedy
            ):
                continue
            rows, kept = sequence.replay.step_at(sequence.num_computed, self._backend.kernels)
            kept = min(kept, count)
            filling = min(rows - kept, most - kept, self._backend.shape.takes_back)
            filling = max(0, filling) if self._backend.shape.cuts_tails else 0
            chunks[place] = sequence, kept + filling
            return filling
        return 0

    def _chunks(self, prompts: list[Sequence], num_streams: int, rows: int) -> Runs:
        """Give the rows to the prompts in order; to the others only where all that they want fits.

        That is what they miss, or what they miss before a state is to be copied. One that is begun
        with what is left over has rows beside those of the first one from then on: they would
        share tiles of attention, or be computed in several parts.
        """
        outputs = self._backend.batch.max_outputs - num_streams
        runs: Runs = []
        for sequence in prompts:
            missing = sequence.num_missing
            slot = sequence.slot
            assert slot is not None
            wanted = min(slot.pause(missing), self._alike(sequence))
            count = self._backend.kernels.piece_of(wanted, rows)
            count -= max(0, sequence.num_outputs(count) - outputs)
            if count <= 0 or (runs and count < wanted):
                continue
            outputs -= sequence.num_outputs(count)
            runs.append((sequence, count))
            rows -= count
        return runs

    def _alike(self, sequence: Sequence) -> int:
        """How many of its next tokens are computed by the same kernels as at first: sampled ones
        were in steps of few rows. A suspect has few steps instead."""
        if sequence.is_suspect:
            return sequence.num_missing
        left = sequence.num_prompt - sequence.num_computed
        return left if left > 0 else self._backend.kernels.few


def _num_missing(sequence: Sequence) -> int:
    return sequence.num_missing


def _last_turn(sequence: Sequence) -> int:
    return sequence.last_turn


def _cut(sequence: Sequence, count: int) -> int:
    """So many rows, or fewer, where a state must be copied before the last of them."""
    assert sequence.slot is not None
    return sequence.slot.pause(count)


def _index(run: tuple[Sequence, int]) -> int:
    slot = run[0].slot
    assert slot is not None
    return slot.index


class Turns:
    """Keys take turns, each one after all others have had theirs.

    To change from one to another costs a step more than its rows, so a turn lasts as long as
    nobody waits for more than `max_stall` seconds in all for the turns of the others, where the
    next step takes as long as the one before. A turn has one step at least.
    """

    def __init__(self, max_stall: float) -> None:
        self._max_stall = max_stall
        self._order: list[bytes] = []  # the one that has its turn, then who waits the longest
        self._began = 0.0
        self._asked = 0.0

    @property
    def num_others(self) -> int:
        """Keys that wait while another one has its turn."""
        return max(0, len(self._order) - 1)

    def next(self, keys: Collection[bytes], now: float) -> bytes:
        """Which of these keys, at least one, the coming step is for."""
        before = self._order[:1]
        self._order = [key for key in self._order if key in keys]
        self._order += [key for key in dict.fromkeys(keys) if key not in self._order]
        turn = self._max_stall / max(1, self.num_others)
        if self._order[:1] == before and now - self._began + (now - self._asked) > turn:
            self._order.append(self._order.pop(0))
        self._asked = now
        if self._order[:1] != before:
            self._began = now
        return self._order[0]
