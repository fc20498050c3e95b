"""What is chosen from the rows of a step, one after the other or side by side."""

from __future__ import annotations

from functools import partial

from worker.engine.backend import Backend
from worker.engine.output import TokenLogprob, token_logprob
from worker.engine.sequence import Sequence
from worker.engine.steps.plan import StepPlan
from worker.errors import RequestError

Chosen = tuple[int, TokenLogprob | None]


class StepChoices:
    """The tokens of one step.

    Each sequence has a sampler of its own, so it makes no difference who is asked first, nor
    whether two are asked at the same time: seeds repeat either way.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._made: dict[str, Chosen | RequestError] = {}

    def make(self, plan: StepPlan) -> None:
        """Choose for all sequences of a step that catch up with themselves, where they are many.

        Not for those with guesses: which row is the next one is known when the last was chosen.
        """
        self._made.clear()
        fewest = self._backend.rows_apart
        if not fewest or len(plan.runs) < fewest:
            return
        rows: list[tuple[Sequence, int]] = []
        first = 0
        for sequence, count in plan.runs:
            first += count
            is_guessed = count > 1 and sequence.num_missing == 1
            if sequence.num_missing == count and not is_guessed and sequence.request.max_tokens:
                rows.append((sequence, first - 1))
        if len(rows) >= fewest:
            made = self._backend.side_by_side([partial(self._try, *row) for row in rows])
            names = (sequence.id for sequence, _ in rows)
            self._made.update(zip(names, made, strict=True))

    def take(self, sequence: Sequence, row: int) -> Chosen:
        """The token from batch row `row`, and its ln p if it was asked for.

        Raises RequestError where the sequence's own rules leave no token.
        """
        made = self._made.pop(sequence.id, None)
        if made is None:
            return self._choose(sequence, row)
        if isinstance(made, RequestError):
            raise made
        return made

    def _try(self, sequence: Sequence, row: int) -> Chosen | RequestError:
        try:
            return self._choose(sequence, row)
        except RequestError as error:
            return error

    def _choose(self, sequence: Sequence, row: int) -> Chosen:
        backend, top = self._backend, sequence.request.logprobs
        token = backend.sample(row, sequence.sampler)
        if top is None:
            return token, None
        return token, token_logprob(backend.logits(row), token, top)
