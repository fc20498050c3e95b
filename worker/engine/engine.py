"""The engine: add, abort, step."""

from __future__ import annotations

from collections.abc import Callable

from worker.engine.backend import Backend, BatchError, OutOfCells
from worker.engine.logprobs import token_logprob
from worker.engine.request import Request, check_request
from worker.engine.scheduler import Plan, Scheduler
from worker.engine.sequence import Delta, Sequence, Timings
from worker.engine.stats import EngineSnapshot, SequenceProgress, Stats
from worker.errors import DecodeError, RequestError


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
        *,
        max_running: int | None = None,
        max_stall: float = 0.4,
        drafting: bool = False,
    ) -> None:
        """`clock` gives seconds; it stamps timings and measures what a step costs.

        max_running: sequences that run at once; the other slots are cache
        max_stall: seconds that reading a prompt may make running streams wait
        drafting: guess tokens from the sequence's own text and verify them in the same step
        """
        self.backend = backend
        self._clock = clock
        self._sequences: dict[str, Sequence] = {}
        self._num_steps = 0
        self._stats = Stats()
        self.max_running = min(max_running or backend.num_slots, backend.num_slots)
        self.scheduler = Scheduler(backend, self.max_running, max_stall, drafting=drafting)
        self.snapshot = self._take_snapshot()

    @property
    def is_idle(self) -> bool:
        """Whether a step would do nothing."""
        return self.scheduler.is_idle

    def check(self, request: Request) -> None:
        """Raise RequestError for what `add` must not see; safe to call from any thread."""
        check_request(request, self.backend.vocab_size, self.backend.max_length)

    def add(self, request: Request) -> None:
        """Queue a checked request. Raises RequestError when its sampler cannot be made."""
        if request.id in self._sequences:
            raise AssertionError(f"request id {request.id} is in use")
        sequence = Sequence(request, self.backend.max_length, self._clock())
        sequence.sampler = self.backend.make_sampler(request)
        self._sequences[request.id] = sequence
        self.scheduler.add(sequence)
        self.snapshot = self._take_snapshot()

    def abort(self, request_id: str) -> None:
        """Forget a request, in whatever state; unknown ids are fine."""
        sequence = self._sequences.get(request_id)
        if sequence is not None:
            self._forget(sequence, "aborted")
            self.snapshot = self._take_snapshot()

    def step(self) -> list[Delta]:
        """Schedule, run, commit: what was added to whom."""
        plan = self.scheduler.schedule(self._clock())
        if not plan:
            return []
        if len(self.scheduler.waiting) != self.snapshot.num_waiting:
            self.snapshot = self._take_snapshot()  # what is read while the batch is computed
        self._num_steps += 1
        deltas = self._run(plan)
        self.snapshot = self._take_snapshot()
        return deltas

    def _take_snapshot(self) -> EngineSnapshot:
        scheduler, cells = self.scheduler, self.scheduler.cells
        running = [
            SequenceProgress(s.num_prompt, s.num_computed, s.num_sampled, s.limit)
            for s in scheduler.running
        ]
        return EngineSnapshot(
            self.max_running,
            len(scheduler.waiting),
            tuple(running),
            cells.num_free,
            cells.num_cached,
            cells.num_live,
            self._num_steps,
            scheduler.num_preempted,
            self._stats,
        )

    def _run(self, plan: Plan) -> list[Delta]:
        rows = self._fill(plan)
        streams = sum(sequence.num_missing == 1 for sequence, _ in plan)
        started = self._clock()
        try:
            self.backend.decode()
        except OutOfCells:
            return self._out_of_cells(plan)
        except BatchError as error:
            return self._batch_failed(plan, error)
        deltas = self._commit(plan, rows, self._clock())
        # Sampling counts too: to score a row of 256k logits takes 3 ms.
        self._measure(streams, len(plan) - streams, self._clock() - started)
        return deltas

    def _measure(self, streams: int, prompts: int, seconds: float) -> None:
        """Tell those who plan by it what a step of this make-up cost."""
        if not prompts:
            self.scheduler.step_cost.observe(self.backend.batch.size, seconds)
            if self.backend.batch.size > streams:
                return  # drafts were verified: neither a plain step nor a prompt
        self.scheduler.pace.observe(streams, self.backend.batch.size - streams, seconds)

    def _fill(self, plan: Plan) -> list[int]:
        """Write the plan into the batch; the first row of each entry."""
        batch = self.backend.batch
        batch.clear()
        rows: list[int] = []
        for sequence, count in plan:
            start = sequence.num_computed
            slot = sequence.slot
            assert slot is not None
            if sequence.num_missing == 1 and sequence.prompt_logprobs is None:
                rows.append(batch.add_one(sequence.tokens[start], start, slot))
                if count > 1 and sequence.draft is not None:
                    for offset, token in enumerate(sequence.draft.tokens[: count - 1], start + 1):
                        batch.add_one(token, offset, slot)
                continue
            first = batch.add(sequence.tokens[start : start + count], start, slot)
            if sequence.prompt_logprobs is not None and start < sequence.num_prompt:
                batch.outputs[first : first + count] = 1
            elif start + count == sequence.num_known:
                batch.outputs[first + count - 1] = 1
            rows.append(first)
        return rows

    def _commit(self, plan: Plan, rows: list[int], now: float) -> list[Delta]:
        """Count what was computed and sample where a sequence has caught up with itself."""
        deltas: list[Delta] = []
        for (sequence, count), first in zip(plan, rows, strict=True):
            if sequence.draft is not None and sequence.num_missing == 1:
                deltas += self._verify(sequence, first, count, now)
                continue
            self.scheduler.computed(sequence, count)
            if sequence.prompt_logprobs is not None:
                self._score_prompt(sequence, first, count)
            if sequence.num_missing == 0:
                deltas.append(self._advance(sequence, first + count - 1, now))
        return deltas

    def _verify(self, sequence: Sequence, first: int, count: int, now: float) -> list[Delta]:
        """Sample row after row, as long as the next row was computed from the token sampled.

        Rows after a wrong guess leave the cache.
        """
        draft, slot = sequence.draft, sequence.slot
        assert draft is not None
        assert slot is not None
        deltas: list[Delta] = []
        used = length = 0
        for used in range(1, count + 1):
            self.scheduler.computed(sequence, 1)
            length = sequence.num_computed
            delta = self._advance(sequence, first + used - 1, now)
            deltas.append(delta)
            guessed = used <= len(draft.tokens)
            right = guessed and delta.token == draft.tokens[used - 1]
            if guessed:
                draft.judge(right=right)
            if delta.is_last or not right or used == count:
                break
        draft.num_drafted += count - 1
        draft.num_accepted += used - 1
        if used < count:
            self.backend.drop(slot, length)
        return deltas

    def _advance(self, sequence: Sequence, row: int, now: float) -> Delta:
        """Sample the sequence's next token from batch row `row` and say what it adds."""
        try:
            return self._sample(sequence, row, now)
        except RequestError as error:  # its own grammar leaves it no token
            self._forget(sequence, "error")
            return Delta(sequence.id, error=error)

    def _sample(self, sequence: Sequence, row: int, now: float) -> Delta:
        request = sequence.request
        prompt_logprobs = None
        if not sequence.num_sampled:
            sequence.first_token_at = now
            if sequence.prompt_logprobs is not None:
                prompt_logprobs = tuple(sequence.prompt_logprobs)
        if request.max_tokens == 0:
            return self._finish(
                sequence, Delta(sequence.id, prompt_logprobs=prompt_logprobs), "length", now
            )
        token = self.backend.sample(row, sequence.sampler)
        logprob = None
        if request.logprobs is not None:
            logprob = token_logprob(self.backend.logits(row), token, request.logprobs)
        sequence.tokens[sequence.num_known] = token
        sequence.num_known += 1
        if token in self.backend.end_tokens:
            text, reason = sequence.flush_text()[0], "stop"
        else:
            piece = sequence.detokenizer.feed(self.backend.pieces[token])
            text, stopped = sequence.stops.feed(piece)
            reason = "stop" if stopped else None
            if reason is None and sequence.num_known == sequence.limit:
                tail, stopped = sequence.flush_text()
                text, reason = text + tail, "stop" if stopped else "length"
        delta = Delta(sequence.id, text, token, logprob, prompt_logprobs)
        return delta if reason is None else self._finish(sequence, delta, reason, now)

    def _score_prompt(self, sequence: Sequence, first: int, count: int) -> None:
        """ln p of the prompt tokens that follow the rows just computed."""
        scores = sequence.prompt_logprobs
        top = sequence.request.prompt_logprobs
        assert scores is not None
        assert top is not None
        begin = sequence.num_computed - count
        for row in range(count):
            position = begin + row + 1  # row i predicts token i + 1
            # A sequence that was put back computes its prompt again; it was scored already.
            if len(scores) == position - 1 and position < sequence.num_prompt:
                token = int(sequence.tokens[position])
                scores.append(token_logprob(self.backend.logits(first + row), token, top))

    def _finish(self, sequence: Sequence, delta: Delta, reason: str, now: float) -> Delta:
        self._forget(sequence, reason)
        draft = sequence.draft
        return Delta(
            delta.id,
            delta.text,
            delta.token,
            delta.logprob,
            delta.prompt_logprobs,
            finish_reason=reason,
            cached_tokens=sequence.cached_tokens,
            drafted_tokens=draft.num_drafted if draft else 0,
            accepted_tokens=draft.num_accepted if draft else 0,
            timings=Timings(
                sequence.submitted_at, sequence.admitted_at, sequence.first_token_at, now
            ),
        )

    def _forget(self, sequence: Sequence, reason: str) -> None:
        """The one place where a sequence ends: queue, slot, cells and sampler are released."""
        del self._sequences[sequence.id]
        self._stats = self._stats.plus(sequence, reason, self._clock())
        self.scheduler.remove(sequence)
        self.backend.free_sampler(sequence.sampler)

    def _out_of_cells(self, plan: Plan) -> list[Delta]:
        """The cache is fuller than our books say: evict, put back the youngest, try again."""
        if self.scheduler.evict_all():
            return []
        youngest = self.scheduler.running[-1]
        if len(self.scheduler.running) > 1:
            self.scheduler.put_back(youngest)
            return []
        self._forget(youngest, "error")
        error = DecodeError(
            f"The sequence does not fit the KV cache ({len(plan)} running, "
            f"{youngest.num_known} tokens, {self.backend.num_cells} cells)."
        )
        return [Delta(youngest.id, error=error)]

    def _batch_failed(self, plan: Plan, error: BatchError) -> list[Delta]:
        """Run each sequence of a failed batch alone, so that only the guilty one fails."""
        if len(plan) == 1 and plan[0][0].is_suspect:
            guilty = plan[0][0]
            self.scheduler.put_back_broken(guilty)
            self._forget(guilty, "error")
            return [Delta(guilty.id, error=error)]
        for sequence, count in reversed(plan):
            sequence.suspect_until = min(sequence.num_computed + count, sequence.num_known)
            self.scheduler.put_back_broken(sequence)
        return []
