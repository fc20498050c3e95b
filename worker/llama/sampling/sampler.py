"""The sampler of one sequence: what changes a row, what is allowed, what is chosen."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from worker.engine.request import Request
from worker.engine.sampling import SEED_RANGE
from worker.llama.guides.guides import Guides
from worker.llama.sampling.choice import ChainChoice, Remains, TokenChoice, choice_of
from worker.llama.sampling.edits import Edits
from worker.llama.sampling.guided import GuidedChoice
from worker.llama.sampling.limited import LimitedChoice
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab


class Sampler:
    """left  with `as_drawn` the logits that the token before was drawn from: -inf where none is"""

    def __init__(
        self, request: Request, vocab: Vocab, workspace: Workspace, guides: Guides
    ) -> None:
        """Raises RequestError where its constraint cannot be held."""
        params, seed = request.params.sampling, request.seed
        self.left: np.ndarray | None = None
        self._remains: Remains | None = None
        self._edits = Edits(request, vocab, workspace)
        try:
            if request.params.as_drawn:
                seed = secrets.randbelow(SEED_RANGE) if seed is None else seed
                self._remains = Remains(params, seed, vocab, workspace)
            self._choice: TokenChoice = choice_of(params, seed, vocab, workspace)
        except BaseException:
            self._edits.free()
            raise
        if params.constraint is not None:
            try:
                self._choice = GuidedChoice(
                    self._choice, params.constraint, guides, vocab, workspace
                )
            except BaseException:
                self.free()
                raise
        if request.params.limit is not None:
            self._choice = LimitedChoice(self._choice, request.params, vocab, workspace)

    def sample(self, row: np.ndarray, at: tuple[Any, int] | None = None) -> int:
        """Choose from the logits of a row, float32 [vocab_size], and accept the choice.

        at: the context whose output row it is, and the row's number; None: it is in no context

        The row is changed while this runs, and is as before afterwards. Raises RequestError where
        the request's own rules leave nothing to choose.
        """
        done = self._edits.apply(row)
        try:
            if at and isinstance(self._choice, ChainChoice) and self._choice.is_native:
                token = self._choice.choose_at(*at)
            else:
                token = self._choice.choose(row)
            if self._remains is not None:
                self.left = self._remains.of(row, token)
        finally:
            self._edits.undo(row, done)
        self._edits.accept(token)
        return token

    def ahead(self) -> list[int]:
        """Tokens that must come next, whatever the model says; they are accepted."""
        if not isinstance(self._choice, GuidedChoice | LimitedChoice):
            return []
        found = self._choice.ahead()
        for token in found:
            self._edits.accept(token)
        return found

    def free(self) -> None:
        """Release what is native; safe to call again."""
        self._edits.free()
        self._choice.free()
        if self._remains is not None:
            self._remains.free()
