"""The sampler of one sequence: what changes a row, what is allowed, what is chosen."""

from __future__ import annotations

import math
import secrets
from typing import Any

import numpy as np

from worker.engine.output import Detokenizer
from worker.engine.request import GenerationParams, Request, Resumption
from worker.engine.sampling import SEED_RANGE
from worker.grammar.constraint import Constraint
from worker.llama.guides.guides import Guides
from worker.llama.guides.matcher import Watch
from worker.llama.sampling.choice import ChainChoice, Remains, TokenChoice, choice_of
from worker.llama.sampling.edits import Edits
from worker.llama.sampling.guided import GuidedChoice
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab

_NEXT_SEED = 0x9E3779B1  # far from the seeds that copies have
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
        self._is_cut = False
        self._text = Detokenizer()
        self._forced: list[int] = []

    @property
    def place(self) -> tuple[float, ...]:
        return self._choice.place

    def resume(self, place: tuple[float, ...]) -> None:
        self._choice.resume(place)

    def choose(self, row: np.ndarray) -> int:
        """A token id; `row` float32 [vocab_size] stays so."""
        if (forced := self._next_forced()) is not None:
            return self._force(row, forced)
        token = self._choice.choose(row)
        self._note(token)
        return token

    def follow(self, token: int) -> None:
        self._choice.follow(token)
        if self._next_forced() is None:
            self._note(token)

    def _next_forced(self) -> int | None:
        """The token that must come because the part is too long; None: it is not."""
        over = self._num_inside - self._limit.count if self._is_inside else -1
        if self._is_cut:
            over = max(over, 0)
        if over >= _MAX_MORE or (over >= 0 and not self._text.is_held):
            self._is_inside = self._is_cut = False
            self._forced = list(self._limit.forced)
        return self._forced.pop(0) if self._forced else None

    def cut(self) -> bool:
        """End the part that is being written as if it were too long: whether there is one."""
        self._is_cut = self._is_inside
        return self._is_cut

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
            self._is_cut = False

    def _force(self, row: np.ndarray, token: int) -> int:
        only = self._workspace.copy_row(row)
        only[:] = -math.inf
        only[token] = 0.0
        return self._choice.choose(only)

    def free(self) -> None:
        """Release what is native; safe to call again."""
        self._choice.free()


def _watch(texts: tuple[str, ...]) -> Watch:
    """What a constraint has that begins after one of these texts."""
    return Watch(Constraint(kind="regex", text="", starts_after=texts))


class Sampler:
    """_edits: None: the request chooses from rows as they are

    left  with `as_drawn` the logits that the token before was drawn from: -inf where none is"""

    def __init__(
        self,
        request: Request,
        vocab: Vocab,
        workspace: Workspace,
        guides: Guides,
        resumption: Resumption | None = None,
    ) -> None:
        """Raises RequestError where its constraint cannot be held.

        resumption  what was written before; it draws from another seed then, of the same one
        """
        params, seed = request.params.sampling, request.seed
        if resumption is not None and seed is not None:
            seed = (seed + resumption.number * _NEXT_SEED) % SEED_RANGE
        self.left: np.ndarray | None = None
        self._remains: Remains | None = None
        self._edits: Edits | None = None
        if resumption is not None or vocab.suppressed or params.edits_rows:
            self._edits = Edits(request, vocab, workspace)
        try:
            if request.params.as_drawn:
                seed = secrets.randbelow(SEED_RANGE) if seed is None else seed
                self._remains = Remains(params, seed, vocab, workspace)
            self._choice: TokenChoice = choice_of(params, seed, vocab, workspace)
        except BaseException:
            if self._edits is not None:
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
        written = request.written if resumption is None else resumption.written
        try:
            for token in written:
                self._choice.follow(token)
                if self._edits is not None:
                    self._edits.accept(token)
            if resumption is not None and self._edits is not None:
                self._edits.ban(resumption.banned)
            elif request.place:
                self._choice.resume(request.place)
        except BaseException:
            self.free()
            raise

    @property
    def place(self) -> tuple[float, ...]:
        """For a request that goes on elsewhere; see `TokenChoice`."""
        return self._choice.place

    def sample(self, row: np.ndarray, at: tuple[Any, int] | None = None) -> int:
        """Choose from the logits of a row, float32 [vocab_size], and accept the choice.

        at: the context whose output row it is, and the row's number; None: it is in no context

        The row is changed while this runs, and is as before afterwards. Raises RequestError where
        the request's own rules leave nothing to choose.
        """
        edits = self._edits
        done = () if edits is None else edits.apply(row)
        try:
            if at and isinstance(self._choice, ChainChoice) and self._choice.is_native:
                token = self._choice.choose_at(*at)
            else:
                token = self._choice.choose(row)
            if self._remains is not None:
                self.left = self._remains.of(row, token)
        finally:
            if edits is not None:
                edits.undo(row, done)
        if edits is not None:
            edits.accept(token)
        return token

    def ahead(self) -> list[int]:
        """Tokens that must come next, whatever the model says; they are accepted."""
        if not isinstance(self._choice, GuidedChoice | LimitedChoice):
            return []
        found = self._choice.ahead()
        if self._edits is not None:
            for token in found:
                self._edits.accept(token)
        return found

    def cut(self) -> bool:
        """End the part that its `SpanLimit` bounds: whether one is being written."""
        return isinstance(self._choice, LimitedChoice) and self._choice.cut()

    def free(self) -> None:
        """Release what is native; safe to call again."""
        if self._edits is not None:
            self._edits.free()
        self._choice.free()
        if self._remains is not None:
            self._remains.free()
