"""The engine: add, abort, step."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import numpy as np

from worker.cache.slot_file import KeptSequence
from worker.cache.store import CacheStats, Store
from worker.engine.backend import Backend, BatchError, OutOfCells, OutputRow
from worker.engine.banned import Guard
from worker.engine.cost import StepCost
from worker.engine.draft import Draft
from worker.engine.drafts.guesser import NO_DRAFTING, Drafting, Guesser
from worker.engine.drafts.rounds import DraftBackend
from worker.engine.embedding import Embedded, EmbeddingBackend, EmbeddingLane, EmbeddingRequest
from worker.engine.output import TokenLogprob, token_logprob
from worker.engine.plan import StepPlan
from worker.engine.replay import AHEAD, AMONG
from worker.engine.request import Request, check_request
from worker.engine.scheduler import Scheduler
from worker.engine.scoring import (
    ScoredSequence,
    ScoreJob,
    ScoringRequest,
    check_scores,
    log_probabilities,
)
from worker.engine.sequence import Delta, Mark, Sequence, SequenceStatus
from worker.engine.stats import EngineSnapshot, Stats, progress_of
from worker.errors import BackendError, DecodeError, RequestError, WorkerError


class Engine:
    """Many sequences over one backend. Not thread-safe: one thread calls everything.

    There is no prefill phase and no decode phase: each step brings the computed tokens of some
    sequences nearer to their known tokens, all of them in one batch.

    snapshot  the counters, never older than a delta that was returned, and renewed before a
              batch is computed whenever sequences have begun to run; any thread may read it
    """

    def __init__(
        self,
        backend: Backend,
        clock: Callable[[], float],
        store: Store | None = None,
        drafting: Drafting = NO_DRAFTING,
        lane: EmbeddingLane | None = None,
        *,
        max_running: int | None = None,
        max_stall: float = 0.4,
    ) -> None:
        """`clock` gives seconds; it stamps timings and measures what steps and copies cost.

        store: keeps the states of what has ended; None: they stay in their slots only
        drafting: what guesses tokens, which a step verifies
        lane: gives vectors of texts; None: nobody may ask for some
        max_running: sequences that run at once; None: as many as there are slots
        max_stall: seconds that a prompt or a copy may make running streams wait
        """
        self.backend = backend
        self._clock = clock
        self._sequences: dict[str, Sequence] = {}
        self._jobs: dict[str, ScoreJob] = {}
        self._max_stall = max_stall
        self._num_steps = 0
        self._stats = Stats()
        self._store = store
        self.max_running = min(max_running or backend.shape.num_slots, backend.shape.num_slots)
        self._cost = StepCost(backend.kernels)
        self._guesser = None
        if drafting.is_on and backend.shape.takes_back:
            self._guesser = Guesser(self._cost, drafting, backend, clock, max_stall)
        self._rounds = None if self._guesser is None else self._guesser.rounds
        self.lane = lane
        self.scheduler = self._new_scheduler()
        self.snapshot = self._take_snapshot()

    def _new_scheduler(self) -> Scheduler:
        return Scheduler(
            self.backend,
            self.max_running,
            self._max_stall,
            self._clock,
            self._store,
            self._cost,
            self._guesser,
            self._stats,
        )

    def use(
        self,
        backend: Backend,
        draft: DraftBackend | None = None,
        embedder: EmbeddingBackend | None = None,
    ) -> None:
        """Go on with another backend of the same model and options, and what computes beside it.

        Nothing may run, and `empty` was called before the one before was closed. What steps and
        guesses taught stays, and so does what is kept.
        """
        self.backend, self._cost.kernels = backend, backend.kernels
        if self._rounds is not None and draft is not None:
            self._rounds.use(draft)
        if self.lane is not None and embedder is not None:
            self.lane.backend = embedder
        self.scheduler = self._new_scheduler()
        self.snapshot = self._take_snapshot()

    @property
    def is_idle(self) -> bool:
        """Whether a step would do nothing."""
        return self.scheduler.is_idle and (self.lane is None or self.lane.is_idle)

    def check(self, request: Request) -> None:
        """Raise RequestError for what `add` must not see; safe to call from any thread."""
        if isinstance(request, EmbeddingRequest):
            if self.lane is None:
                raise RequestError("This worker makes no vectors.", hint="Start it with --pooling.")
            self.lane.check(request, self.backend.vocab_size)
            return
        if isinstance(request, ScoringRequest):
            check_scores(request, self.backend.vocab_size, self.backend.max_length)
            return
        check_request(request, self.backend.vocab_size, self.backend.max_length)

    def add(self, request: Request) -> None:
        """Queue a checked request. Raises RequestError when its sampler cannot be made."""
        if isinstance(request, EmbeddingRequest) and self.lane is not None:
            self.lane.add(request)
            return
        if isinstance(request, ScoringRequest):
            tile = self.backend.kernels.tile
            self._jobs[request.id] = job = ScoreJob(request, self._clock(), tile)
            self._add_suffixes(job)
            self.snapshot = self._take_snapshot()
            return
        assert request.id not in self._sequences, f"request id {request.id} is in use"
        sequence = Sequence(request, self.backend.max_length, self._clock())
        sequence.sampler = self.backend.make_sampler(request)
        if request.params.sampling.banned_strings:
            sequence.guard = Guard(request)
        self._sequences[request.id] = sequence
        self.scheduler.add(sequence)
        self.snapshot = self._take_snapshot()

    def _add_suffixes(self, job: ScoreJob) -> None:
        """Queue so many of a job's suffixes that the slots are full where nobody else is there."""
        for sequence in job.more(self.max_running, self.backend.max_length, self._clock()):
            self._sequences[sequence.id] = sequence
            self.scheduler.add(sequence)

    def abort(self, request_id: str) -> None:
        """Forget a request, in whatever state; unknown ids are fine."""
        if self.lane is not None:
            self.lane.abort(request_id)
        job = self._jobs.get(request_id)
        if job is not None:
            self._end_job(job, "aborted")
            self.snapshot = self._take_snapshot()
            return
        sequence = self._sequences.get(request_id)
        if sequence is not None:
            self._forget(sequence, "aborted")
            self.snapshot = self._take_snapshot()

    def cut(self, request_id: str) -> bool:
        """End the part of an answer that its `SpanLimit` bounds, such as a thought: whether one is
        being written. An answer that has ended has none."""
        sequence = self._sequences.get(request_id)
        if sequence is None or not self.backend.cut(sequence.sampler):
            return False
        if sequence.guard is not None:
            sequence.guard.is_cut = True
        return True

    def take_out(
        self, tokens: np.ndarray, key: bytes, shorten: Callable[[np.ndarray, int], np.ndarray]
    ) -> KeptSequence | None:
        """The state of an ended sequence, of as many of its tokens as are kept; None: of none.

        shorten: the first of packed rows
        tokens is int32 [n], packed rows are uint8 [n].
        """
        return self.scheduler.keeper.take_out(tokens, key, shorten)

    def put_in(self, kept: KeptSequence) -> int:
        """Keep a state, for prompts that begin as it does; of how many tokens there was room.

        Raises RequestError where it was for none.
        """
        if self._store is None:
            raise RequestError("Nothing is kept here.", hint="Start without --cache-ram 0.")
        self._store.keep(kept.tokens, kept, kept.key, kept.rests[:-1])
        self.snapshot = self._take_snapshot()
        count = self._store.find(kept.tokens, kept.key).num_tokens
        if not count:
            raise RequestError("It cannot be kept here.", hint="Start with a larger --cache-ram.")
        return count

    def erase(self, tokens: np.ndarray, key: bytes) -> None:
        """Forget an ended sequence of these tokens. tokens: int32 [n]"""
        self.scheduler.keeper.erase(tokens, key)
        self.snapshot = self._take_snapshot()

    def keep_ended(self, seconds: float) -> None:
        """Keep what ended, as far as `seconds` are enough; no step follows."""
        self.scheduler.keeper.begin()
        self.scheduler.keeper.save_ended(seconds)

    def empty(self) -> None:
        """Keep what ended, and forget what all slots hold; nothing may run."""
        self.scheduler.empty()
        self.snapshot = self._take_snapshot()

    def status_of(self, request_id: str) -> SequenceStatus | None:
        """How a request stands; None: it has ended, or was never added. Any thread may ask."""
        found = self._sequences.get(request_id) or self._jobs.get(request_id)
        return None if found is None else found.status()

    def vectors(self, request: EmbeddingRequest) -> tuple[np.ndarray, ...]:
        """Step until it has its vectors, for who steps the engine; nothing else may run.

        Raises RequestError where the engine cannot take it, else what its last delta tells.
        Each is float32 [width], or [tokens, width] with one for each token.
        """
        self.check(request)
        self.add(request)
        found: tuple[np.ndarray, ...] = ()
        while not self.is_idle:
            for delta in self.step():
                if delta.error is not None:
                    raise delta.error
                assert isinstance(delta, Embedded)
                found = delta.vectors
        return found

    def step(self) -> list[Delta]:
        """Schedule, fill, compute, commit: what was added to whom. Or a step of the lane's."""
        if self.lane is not None and self.lane.is_due(awaited=not self.scheduler.is_idle):
            step = self.lane.step()
            self._stats.note_embedding(step.num_rows, step.num_texts, step.seconds)
            return step.deltas
        now = self._clock()
        ready = self.scheduler.admit(now)
        nobody_waits = len(ready) == len(self.scheduler.running)
        deltas = self._begin(ready) if ready else []
        if deltas and nobody_waits:
            self.snapshot = self._take_snapshot()
            return deltas
        plan = self.scheduler.schedule(now)
        if not plan.runs:
            stuck = self.scheduler.stuck
            deltas += [] if stuck is None else self._fail(stuck, self._is_stuck())
            self.snapshot = self._take_snapshot()  # what had ended may be saved now
            return deltas
        if len(self.scheduler.order) != self.snapshot.num_waiting:
            self.snapshot = self._take_snapshot()  # others read it while the batch is computed
        self._num_steps += 1
        self._fill(plan)
        deltas += self._compute(plan)
        self.snapshot = self._take_snapshot()
        return deltas

    def _begin(self, ready: list[Sequence]) -> list[Delta]:
        """The first tokens of those whose prompts are known as a whole."""
        deltas, now = list[Delta](), self._clock()
        for sequence in ready:
            row, sequence.end = sequence.end, None
            assert row is not None
            if sequence.params.tells_progress:
                deltas.append(sequence.progress(now))
            deltas += self._advance(sequence, row, now)
        self._stats.note_tokens([(sequence, 0) for sequence in ready], now, self._max_stall)
        return deltas

    def _fill(self, plan: StepPlan) -> None:
        """Write the plan's rows into the batch, in the order of its runs."""
        batch = self.backend.batch
        batch.clear()
        batch.key = plan.runs[0][0].key
        for sequence, count in plan.runs:
            slot = sequence.slot
            assert slot is not None
            start, known = slot.length, sequence.num_known
            count -= plan.filling
            medium, position = sequence.medium, slot.position
            if medium is not None:
                position = slot.prompt.position(medium.start)
                batch.add_medium(medium, position, start, start + count, slot.index)
                break
            if known - start == 1 and sequence.prompt_logprobs is None:
                batch.add_one(sequence.tokens[start], position, slot.index)
                if count > 1 and sequence.draft is not None:
                    for place, token in enumerate(sequence.draft.tokens[: count - 1], position + 1):
                        batch.add_one(token, place, slot.index)
                continue
            first = batch.add(sequence.tokens[start : start + count], position, slot.index)
            if sequence.prompt_logprobs is not None and start < sequence.num_given:
                batch.outputs[first + count - sequence.num_outputs(count) : first + count] = 1
            elif start + count == known:
                batch.outputs[first + count - 1] = 1
        for slot in plan.padding:
            batch.add(batch.tokens[:1], slot.position, slot.index)
        for _ in range(plan.filling):
            last = batch.size - 1
            place, slot_index = int(batch.positions[last]) + 1, int(batch.slots[last])
            batch.add(batch.tokens[last : last + 1], place, slot_index)

    def _compute(self, plan: StepPlan) -> list[Delta]:
        """Run the batch and commit it; when it fails, say who is put back or ended."""
        started, num_busy = self._clock(), len(self.scheduler.running)
        try:
            self.backend.decode()
        except OutOfCells:
            return self._fail(self.scheduler.relieve(), self._does_not_fit())
        except BatchError as error:
            self.scheduler.cells.spoil(plan.padding)
            return self._fail(self.scheduler.isolate(plan), error)
        if self._rounds is not None:
            self._rounds.note(plan.runs, self.backend.batch.tokens[: self.backend.batch.size])
        for slot in plan.padding:
            self.backend.drop(slot.index, slot.position)
        deltas = self._commit(plan, self._clock())
        # Sampling counts too: to score a row of 256k logits takes 3 ms.
        seconds = self._clock() - started
        self.scheduler.observe(plan, seconds)
        self._stats.note_step(plan.num_rows, plan.prompt_rows > 0, num_busy, seconds)
        if self.lane is not None:
            self.lane.others_had(seconds)
        return deltas

    def _commit(self, plan: StepPlan, now: float) -> list[Delta]:
        """Count what was computed and sample where a sequence has caught up with itself."""
        deltas: list[Delta] = []
        first = 0
        for sequence, count in plan.runs:
            draft, missing = sequence.draft, sequence.num_missing
            if sequence.params.tells_steps:
                sequence.step = count if len(plan.runs) == 1 and not plan.padding else None
            count -= plan.filling
            if not sequence.last_token_at:
                self._stats.computed_tokens += 0 if sequence.is_copy else min(count, missing)
                if isinstance(sequence, ScoredSequence):
                    deltas += self._commit_suffix(sequence, first, count, now)
                    first += count
                    continue
            if missing == 1 and draft is not None and draft.tokens:
                deltas += self._verify(sequence, draft, first, count, now)
            else:
                tells = sequence.params.tells_progress and not sequence.num_sampled
                if tells and sequence.num_computed == sequence.cached_tokens:
                    deltas.append(sequence.progress(now))
                slot = sequence.slot
                assert slot is not None
                self.scheduler.cells.grow(slot, count)
                if plan.filling:
                    self.scheduler.cells.discard_beyond(slot)
                if tells:
                    deltas.append(sequence.progress(now))
                if sequence.prompt_logprobs is not None:
                    self._score_prompt(sequence, first, count)
                if missing == count:
                    deltas += self._advance(sequence, first + count - 1, now)
            first += count
        self._stats.note_tokens(plan.runs, now, self._max_stall)
        return deltas

    def _commit_suffix(
        self, sequence: ScoredSequence, first: int, count: int, now: float
    ) -> list[Delta]:
        """Score what was computed of a suffix; its job's delta where that was the last of it."""
        slot = sequence.slot
        if slot is None:  # another suffix failed in this step, and so did the job
            return []
        job, scores = sequence.job, sequence.token_scores
        begin = sequence.num_computed
        self.scheduler.cells.grow(slot, count)
        try:
            for place in range(max(begin + 1, sequence.scored_from), begin + count + 1):
                # A sequence that was put back is computed again; it was scored already.
                if place == sequence.scored_from + len(scores) and place < sequence.num_prompt:
                    logits = self.backend.logits(first + place - 1 - begin)
                    scores += log_probabilities(logits, (int(sequence.tokens[place]),))
            if sequence.num_missing:
                return []
            found = self.backend.logits(first + count - 1)
            candidates = log_probabilities(found, sequence.suffix.candidates)
        except BackendError as error:
            return self._fail(sequence, error)
        sequence.first_token_at = now
        del self._sequences[sequence.id]
        self.scheduler.remove(sequence)
        job.end(sequence, candidates)
        if not job.is_over:
            self._add_suffixes(job)
            return []
        self._end_job(job, "stop")
        return [job.last_delta(now)]

    def _end_job(self, job: ScoreJob, reason: str) -> None:
        """Forget a job, with those of its suffixes that are on their way."""
        del self._jobs[job.request.id]
        for sequence in job.live.values():
            del self._sequences[sequence.id]
            if reason == "error":
                self.scheduler.discard(sequence)
            else:
                self.scheduler.remove(sequence)
        if job.has_branches:
            self.scheduler.prefixes.forget_branches(np.array(job.request.prompt.tokens, np.int32))
        self._stats.note_scored(reason)

    def _verify(
        self, sequence: Sequence, draft: Draft, first: int, count: int, now: float
    ) -> list[Delta]:
        """Sample row after row, as long as the next row was computed from the token sampled, or
        from one that had to come.

        Rows after a wrong guess leave the cache.
        """
        slot = sequence.slot
        assert slot is not None
        deltas: list[Delta] = []
        draft.num_drafted += count - 1
        num_accepted = draft.num_accepted
        place = start = sequence.num_computed
        for place in range(start, start + count):
            self.scheduler.cells.grow(slot, 1)
            draft.num_accepted += place > start
            if place + 1 == sequence.num_known:
                deltas += self._advance(sequence, first + place - start, now)
            ended = not sequence.is_running  # or it went back
            following = int(sequence.tokens[place + 1])
            if not draft.judge(place - start, following) or ended:
                break
        draft.shorten(0)  # the next step may be one without guesses
        if place + 1 < start + count:
            self.scheduler.cells.discard_beyond(slot)
        self._stats.note_draft(count - 1, draft.num_accepted - num_accepted)
        return deltas

    def _advance(self, sequence: Sequence, row: OutputRow, now: float) -> list[Delta]:
        """Sample the sequence's next token from a row, and add what must follow it.

        What must follow is known before its rows are computed. Where log-probabilities are asked
        for each token waits for the row before it.
        """
        deltas: list[Delta] = []
        try:
            if sequence.written:
                deltas += self._repeat(sequence, now)
                if not sequence.is_running:
                    return deltas
            deltas += self._sample(sequence, row, now)
            sequence.num_ahead = 0
            if not sequence.is_running or sequence.params.logprobs is not None:
                return deltas
            for token in self.backend.ahead(sequence.sampler):
                sequence.step = AHEAD
                deltas += self._append(sequence, token, now)
                if not sequence.is_running:
                    break
                sequence.num_ahead += 1
        except (RequestError, BackendError) as error:  # no token is left, or no logits are
            deltas += self._fail(sequence, error)
        return deltas

    def _repeat(self, sequence: Sequence, now: float) -> list[Delta]:
        """The deltas of what another worker has written, once all of it is computed."""
        written, sequence.written = sequence.written, ()
        step, sequence.step = sequence.step, None
        scores = sequence.prompt_logprobs or []
        of_prompt, of_written = scores[: -len(written)], scores[-len(written) :]
        told = tuple(of_prompt) if sequence.params.prompt_logprobs is not None else None
        sequence.first_token_at = now
        sequence.num_known = sequence.num_prompt
        deltas: list[Delta] = []
        for token, score in itertools.zip_longest(written, of_written):
            deltas += self._append(sequence, token, now, score, told)
            told = None
            if not sequence.is_running:
                break
        sequence.step = step
        return deltas

    def _sample(self, sequence: Sequence, row: OutputRow, now: float) -> list[Delta]:
        params, backend = sequence.params, self.backend
        scores = None
        if not sequence.num_sampled:
            sequence.first_token_at = now
            if sequence.prompt_logprobs is not None:
                scores = tuple(sequence.prompt_logprobs)
        if params.max_tokens == 0:
            delta = Delta(sequence.id, prompt_logprobs=scores)
            return [self._finish(sequence, delta, "length", now)]
        try:
            token = backend.sample(row, sequence.sampler)
        except RequestError:
            if sequence.guard is None or not sequence.guard.bans_at(sequence.num_known):
                raise
            sequence.guard.stop()  # nothing else may come
            self._resume_sampler(sequence, sequence.guard)
            token = backend.sample(row, sequence.sampler)
        if not sequence.num_sampled:
            self.scheduler.ends.keep(sequence, row)
        score = None
        if params.logprobs is not None:
            drawn_by = sequence.sampler if params.as_drawn else None
            score = token_logprob(backend.logits(row, drawn_by), token, params.logprobs)
        return self._append(sequence, token, now, score, scores)

    def _append(
        self,
        sequence: Sequence,
        token: int,
        now: float,
        score: TokenLogprob | None = None,
        scores: tuple[TokenLogprob, ...] | None = None,
    ) -> list[Delta]:
        backend, guard = self.backend, sequence.guard
        shown = backend.pieces[token] or sequence.params.spelled.get(token, b"")
        is_end = token in backend.end_tokens
        if guard is not None and not is_end:
            held = guard.feed(token, shown, sequence.mark())
            if held is not None:
                self._go_back(sequence, guard, held.mark)
                return []
        text, reason = sequence.append(token, None if is_end else shown, now)
        certain = () if score is None else sequence.add_score(score)
        delta = Delta(sequence.id, text, token, certain, scores)
        if sequence.params.tells_place:
            delta = msgspec.structs.replace(delta, place=sequence.sampler.place)
        if sequence.params.tells_steps:
            delta = msgspec.structs.replace(delta, step=sequence.step)
            sequence.step = None if sequence.step is None else AMONG
        if reason is not None:
            delta = self._finish(sequence, delta, reason, now)
        return [delta] if guard is None else guard.release(delta)

    def _go_back(self, sequence: Sequence, guard: Guard, mark: Mark) -> None:
        """Take back the tokens since the mark. The sequence waits again, before all others, and
        finds what it goes on from in the cache."""
        self.scheduler.queue_again(sequence)
        sequence.go_back(mark)
        self._resume_sampler(sequence, guard)

    def _resume_sampler(self, sequence: Sequence, guard: Guard) -> None:
        self.backend.free_sampler(sequence.sampler)
        known = sequence.tokens[: sequence.num_known].tolist()
        resumption = guard.resumption(known, sequence.num_prompt)
        sequence.sampler = self.backend.make_sampler(guard.request, resumption)
        if guard.is_cut:
            guard.is_cut = self.backend.cut(sequence.sampler)

    def _score_prompt(self, sequence: Sequence, first: int, count: int) -> None:
        """ln p of the prompt tokens that follow the rows just computed."""
        scores = sequence.prompt_logprobs
        params = sequence.params
        top = params.logprobs if params.prompt_logprobs is None else params.prompt_logprobs
        assert scores is not None
        assert top is not None
        begin = sequence.num_computed - count
        for row in range(count):
            position = begin + row + 1  # row i predicts token i + 1
            # A sequence that was put back computes its prompt again; it was scored already.
            is_next = len(scores) == position - sequence.scored_from
            if is_next and position < sequence.num_given:
                token = int(sequence.tokens[position])
                logits = self.backend.logits(first + row)
                scores.append(token_logprob(logits, token, top, ranks=sequence.params.prompt_ranks))

    def _finish(self, sequence: Sequence, delta: Delta, reason: str, now: float) -> Delta:
        self._forget(sequence, reason)
        return sequence.last_delta(delta, reason, now)

    def _fail(self, sequence: Sequence | None, error: WorkerError) -> list[Delta]:
        """End the sequence, if there is one, with an error."""
        if sequence is None:
            return []
        if isinstance(sequence, ScoredSequence):
            self._end_job(sequence.job, "error")
            return [sequence.job.last_delta(self._clock(), error)]
        self._forget(sequence, "error")
        return [sequence.last_delta(Delta(sequence.id, error=error), None, self._clock())]

    def _forget(self, sequence: Sequence, reason: str) -> None:
        """The one place where a sequence that was to be continued ends: queue, slot, cells and
        sampler are released."""
        del self._sequences[sequence.id]
        self._stats.note_end(sequence, reason, self._clock())
        self.scheduler.remove(sequence)
        self.backend.free_sampler(sequence.sampler)

    def _does_not_fit(self) -> DecodeError:
        running, num_cells = self.scheduler.running, self.backend.shape.num_cells
        return DecodeError(
            f"The sequence does not fit the KV cache ({len(running)} running, "
            f"{running[-1].num_known} tokens, {num_cells} cells)."
        )

    def _is_stuck(self) -> DecodeError:
        return DecodeError(
            "The sequence needs the whole KV cache, and there is no memory to lay it out anew.",
            hint="Free some memory, or start with a larger --ctx-size or a smaller --parallel.",
        )

    def _take_snapshot(self) -> EngineSnapshot:
        scheduler, cells = self.scheduler, self.scheduler.cells
        return EngineSnapshot(
            self.max_running,
            len(scheduler.order),
            tuple(map(progress_of, scheduler.running)),
            cells.pool.num_free,
            cells.num_cached,
            cells.pool.num_live,
            self._num_steps,
            self._stats.num_preempted,
            self._stats,
            CacheStats() if self._store is None else self._store.stats,
        )
