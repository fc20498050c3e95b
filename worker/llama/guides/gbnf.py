"""GBNF by llama.cpp's own grammar sampler, for grammars that only it follows."""

from __future__ import annotations

import math
import time

import numpy as np

from worker.errors import RequestError
from worker.grammar.constraint import Constraint
from worker.limits import FOLLOWING
from worker.llama.guides.mask import TokenMask
from worker.llama.guides.matcher import MatcherError
from worker.llama.library import native
from worker.llama.sampling.chain import Chain
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab

# Ordinary grammars take milliseconds.
_BUDGET_S = FOLLOWING.most / 1000


class GbnfMatcher:
    """Follows one text through a grammar, as `Matcher` does; each `fill` reads the vocabulary."""

    is_done = False  # llama.cpp does not say; only end tokens are allowed then

    def __init__(self, constraint: Constraint, vocab: Vocab, workspace: Workspace) -> None:
        """`constraint` was checked. Raises RequestError where llama.cpp does not take it."""
        self._constraint, self._vocab, self._workspace = constraint, vocab, workspace
        self._chain = Chain()
        sampler = native.llama_sampler_init_grammar(vocab.handle, constraint.text.encode(), b"root")
        if not sampler:
            raise RequestError(
                f"{constraint.param} does not parse or has no rule named root.",
                param=constraint.param,
                hint="Send GBNF, with a first rule `root ::= ...`.",
            )
        self._chain.add(sampler, constraint.param)

    def copy(self) -> GbnfMatcher:
        """One at the beginning of a text."""
        return GbnfMatcher(self._constraint, self._vocab, self._workspace)

    def allows(self, token: int) -> bool:
        """Whether the token may come next."""
        array = self._workspace.candidates(np.zeros(1, np.float32), np.array([token]))
        self._apply(array)
        return math.isfinite(array.data[0].logit)

    def fill(self, mask: TokenMask) -> None:
        """Write which tokens may come next. Raises MatcherError."""
        size = self._vocab.size
        self._apply(self._workspace.candidates(np.zeros(size, np.float32)))
        bits = np.packbits(np.isfinite(self._workspace.logits(size)), bitorder="little")
        mask.words.view(np.uint8)[: len(bits)] = bits

    def _apply(self, array: object) -> None:
        began = time.thread_time()
        self._chain.apply(array)
        # The time of an ambiguous grammar grows by a factor with each token. It ends here, before
        # other sequences have to wait.
        if time.thread_time() - began > _BUDGET_S:
            raise MatcherError("it is too ambiguous")

    def accept(self, token: int) -> None:
        """The token was written."""
        self._chain.accept(token)

    def free(self) -> None:
        """Release what is native; safe to call again."""
        self._chain.free()
