"""Chooses tokens so that the text matches a constraint."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from worker.errors import RequestError
from worker.grammar.constraint import Constraint
from worker.llama.guides.guides import Guides
from worker.llama.guides.matcher import Matcher, MatcherError, Watch
from worker.llama.sampling.choice import TokenChoice
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab

# Weight of the newest draw in the share of draws that stood; below half of them none is made.
_NEW = 0.1
_WORTH = 0.5
_AGAIN = 0.01  # so that it is tried again some tokens later


class GuidedChoice:
    """A choice among the tokens that a constraint allows next.

    The filters see only those. Where a filter depends on no other token (greedy, or a draw from the
    whole distribution) a token is chosen first, among all, and stands if it is allowed: else the
    choice is made again among those that are. Both ways a token x that is allowed has the
    probability p(x) + (1 - p(allowed)) p(x) / p(allowed) = p(x) / p(allowed).

    What must come, such as the rest of a name, is not chosen: it comes as the tokenizer spells it.

    In free text, before the constraint starts, nothing is asked but where it starts.
    """

    is_plain = False

    def __init__(
        self,
        choice: TokenChoice,
        constraint: Constraint,
        guides: Guides,
        vocab: Vocab,
        workspace: Workspace,
    ) -> None:
        self._choice = choice
        self._constraint = constraint
        self._guides = guides
        self._pieces, self._ends = vocab.pieces, vocab.end_tokens
        self._end = vocab.eos if vocab.eos in self._ends else min(self._ends, default=0)
        self._end_ids = np.array(sorted(vocab.end_tokens), np.intp)
        self._workspace = workspace
        self._template = guides.matcher_of(constraint)
        self._watch = Watch(constraint) if constraint.is_lazy else None
        self._matcher: Matcher | None = None if self._watch else self._template.copy()
        self._is_owed = constraint.required
        self._ahead: list[int] = []  # what must come next
        self._is_over = False  # nothing but the end may come
        if self._matcher is not None:
            self._go_on(self._matcher)
        self._luck = 1.0
        self._is_narrow = False  # the newest mask left few tokens; mostly the next one does, too

    def choose(self, row: np.ndarray) -> int:
        """A token id; `row` float32 [vocab_size], -inf for what may not be chosen, stays so."""
        try:
            if self._matcher is None:
                return self._choose_free(row)
            return self._choose_held(row, self._matcher)
        except MatcherError as error:
            self._give_up(error)

    @property
    def place(self) -> tuple[float, ...]:
        return (self._luck, float(self._is_narrow), *self._choice.place)

    def resume(self, place: tuple[float, ...]) -> None:
        self._luck, self._is_narrow = place[0], bool(place[1])
        self._choice.resume(place[2:])

    def follow(self, token: int) -> None:
        """Raises RequestError for a token that may not come."""
        self._choice.follow(token)
        try:
            if self._matcher is None:
                self._note_free(token)
            elif token not in self._ends:
                self._accept(token, self._matcher)
        except MatcherError as error:
            self._give_up(error)

    def _note_free(self, token: int) -> bool:
        """See whether the constraint starts with a token of the free text; False: it forbids what
        the token has behind a trigger."""
        assert self._watch is not None
        piece = self._pieces[token]
        rest = self._watch.look(token, piece)
        if rest is None:
            self._watch.add(piece)
            return True
        return self._starts_with(rest)

    def _give_up(self, error: MatcherError) -> NoReturn:
        raise RequestError(
            f"{self._constraint.param} takes too much to follow: {error}",
            param=self._constraint.param,
        ) from None

    def _choose_held(self, row: np.ndarray, matcher: Matcher) -> int:
        token = self._ahead[0] if self._ahead else self._lucky(row, matcher)
        if token is None:
            matcher.fill(self._workspace.mask)
            token = self._choose_masked(row)
        if token not in self._ends:
            self._accept(token, matcher)
        return token

    def _accept(self, token: int, matcher: Matcher) -> None:
        matcher.accept(token)
        del self._ahead[:1]
        self._go_on(matcher, token)

    def _go_on(self, matcher: Matcher, last: int | None = None) -> None:
        """See what must come next, after this last token of the constraint's."""
        if self._constraint.repeats and matcher.may_end:
            self._leave(last)
        elif matcher.is_done:
            self._is_over = True
        else:
            self._ahead = self._ahead or matcher.forced_tokens()

    def ahead(self) -> list[int]:
        """All tokens that must come next, as if they had been chosen, the end too."""
        found: list[int] = []
        try:
            while self._ahead and self._matcher is not None:
                found.append(self._ahead[0])
                self._accept(found[-1], self._matcher)
        except MatcherError as error:
            self._give_up(error)
        return [*found, self._end] if self._is_over else found

    def _choose_masked(self, row: np.ndarray) -> int:
        """A token among those of the workspace's mask."""
        ids = self._workspace.allowed_ids()
        self._is_narrow = ids is not None
        if ids is None:
            masked = self._workspace.mask_row(row)
            token = self._choice.choose(masked)
            stands = math.isfinite(masked[token])
        elif len(ids) == 1:
            token = int(ids[0])
            stands = math.isfinite(row[token])
        else:
            token = int(ids[self._choice.choose(row[ids])]) if len(ids) else -1
            stands = token >= 0 and math.isfinite(row[token])
        return token if stands else self._end_in(self._workspace.mask.words)

    def _end_in(self, mask: np.ndarray) -> int:
        """The end of a text that may not go on. It counts also where the request forbids ends: a
        whole answer is no error."""
        found = [end for end in self._ends if int(mask[end >> 5]) >> (end & 31) & 1]
        if not found:
            self._fail()
        return found[0]

    def _lucky(self, row: np.ndarray, matcher: Matcher) -> int | None:
        """A token chosen among all, where it is allowed and such choices mostly are.

        Where few are allowed it costs more to choose among all than to fill a mask.
        """
        if not self._choice.is_plain or self._is_narrow:
            return None
        if self._luck < _WORTH:
            self._luck += _AGAIN
            return None
        token = self._choice.choose(row)
        stands = matcher.allows(token) and math.isfinite(row[token])
        self._luck += _NEW * (stands - self._luck)
        return token if stands else None

    def _leave(self, last: int | None) -> None:
        """Free text follows, which may begin in the last token, and end there again."""
        assert self._watch is not None
        assert self._matcher is not None
        self._matcher.free()
        self._matcher = None
        self._ahead = []
        self._is_owed = False
        self._watch.clear()
        if last is not None:
            piece = self._pieces[last]
            rest = self._watch.look(last, piece)
            if rest is None or not self._starts_with(rest):
                self._watch.add(piece)

    def _choose_free(self, row: np.ndarray) -> int:
        """A token of the free text; where it completes a trigger the constraint starts.

        A token may go on behind the trigger with what the constraint forbids: then it is drawn
        again without that token, which leaves the others their distribution.
        """
        ends = self._end_ids if self._is_owed else self._end_ids[:0]
        kept = row[ends]
        row[ends] = -math.inf
        try:
            return self._draw_free(row)
        finally:
            row[ends] = kept

    def _draw_free(self, row: np.ndarray) -> int:
        allowed = row
        while True:
            token = self._choice.choose(allowed)
            if not math.isfinite(allowed[token]):
                self._fail()
            if self._note_free(token):
                return token
            if allowed is row:
                allowed = self._workspace.copy_row(row)
            allowed[token] = -math.inf

    def _starts_with(self, rest: bytes) -> bool:
        """Start the constraint with the bytes behind its trigger; False: it forbids them."""
        matcher = self._template.copy()
        tokens = self._guides.spell(rest) if rest else []
        stands = b"".join(self._pieces[token] for token in tokens) == rest
        for token in tokens:
            stands = stands and not matcher.is_done and matcher.allows(token)
            if stands:
                matcher.accept(token)
        if not stands:
            matcher.free()
            return False
        self._matcher = matcher
        self._go_on(matcher)
        return True

    def _fail(self) -> NoReturn:
        raise RequestError(
            "The constraint leaves no token to choose.", param=self._constraint.param
        )

    def free(self) -> None:
        """Release what is native; safe to call again."""
        self._choice.free()
        if self._matcher is not None:
            self._matcher.free()
