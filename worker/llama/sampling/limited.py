"""Chooses tokens so that a part of the answer, a thought, is not too long."""

from __future__ import annotations

import math

import numpy as np

from worker.engine.output import Detokenizer
from worker.engine.request import GenerationParams
from worker.grammar.constraint import Constraint
from worker.llama.guides.matcher import Watch
from worker.llama.sampling.choice import TokenChoice
from worker.llama.sampling.guided import GuidedChoice
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab

_MAX_MORE = 3  # tokens over the limit: a character has four bytes at most


class LimitedChoice:
    """Another choice, until the part is too long: then what ends it is chosen, token by token.

    The other choice sees what is forced too, so that a constraint behind a thought begins. A
    character that has begun is ended first: a constraint takes no half of one.
    """

    is_plain = False

    def __init__(
        self, choice: TokenChoice, params: GenerationParams, vocab: Vocab, workspace: Workspace
    ) -> None:
        assert params.limit is not None
        self._limit = params.limit
        self._choice = choice
        self._pieces, self._spelled = vocab.pieces, params.spelled
        self._workspace = workspace
        self._opens = _watch(self._limit.opens)
        self._ends = _watch(self._limit.ends)
        self._is_inside = self._limit.is_open
        self._num_inside = 0
        self._text = Detokenizer()
        self._forced: list[int] = []

    def choose(self, row: np.ndarray) -> int:
        """A token id; `row` float32 [vocab_size] stays so."""
        over = self._num_inside - self._limit.count if self._is_inside else -1
        if over >= _MAX_MORE or (over >= 0 and not self._text.is_held):
            self._is_inside = False
            self._forced = list(self._limit.forced)
        if self._forced:
            return self._force(row, self._forced.pop(0))
        token = self._choice.choose(row)
        self._note(token)
        return token

    def ahead(self) -> list[int]:
        """What a constraint forces behind a thought, see `GuidedChoice`."""
        if self._is_inside or self._forced or not isinstance(self._choice, GuidedChoice):
            return []
        found = self._choice.ahead()
        for token in found:
            self._note(token)
        return found

    def _note(self, token: int) -> None:
        """See whether a part begins or ends."""
        self._num_inside += self._is_inside
        watch = self._ends if self._is_inside else self._opens
        piece = self._pieces[token] or self._spelled.get(token, b"")
        self._text.feed(piece)
        if watch.look(token, piece) is None:
            watch.add(piece)
        else:
            watch.clear()
            self._is_inside = not self._is_inside

    def _force(self, row: np.ndarray, token: int) -> int:
        only = self._workspace.copied(row)
        only[:] = -math.inf
        only[token] = 0.0
        return self._choice.choose(only)

    def free(self) -> None:
        """Release what is native; safe to call again."""
        self._choice.free()


def _watch(texts: tuple[str, ...]) -> Watch:
    """What a constraint has that begins after one of these texts."""
    return Watch(Constraint(kind="regex", text="", starts_after=texts))
