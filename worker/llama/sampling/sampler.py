"""The sampler of one sequence: which way its tokens are chosen."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from worker.engine.likeliest import likeliest
from worker.engine.request import Request
from worker.engine.sampling import SEED_RANGE
from worker.errors import RequestError
from worker.llama.sampling.chain import Chain, add_choice, add_grammar
from worker.llama.sampling.draw import Draw
from worker.llama.sampling.edits import Edits
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab

# Seconds for one token under a grammar. Ordinary grammars take milliseconds.
_STRICT_BUDGET_S = 1.0


class TokenChoice(Protocol):
    """Chooses from a row of logits that biases, bans and penalties have changed already."""

    def choose(self, row: np.ndarray) -> int: ...

    def survivors(self, row: np.ndarray) -> dict[int, float]: ...

    def free(self) -> None: ...


def choice_of(request: Request, vocab: Vocab, workspace: Workspace) -> TokenChoice:
    """The one rule which way a request goes.

    grammar, mirostat, typical-p or XTC on everything   llama.cpp, with all tokens as candidates
    greedy                                              the largest logit
    top-k                                               llama.cpp, with few candidates
    temperature, top-p, min-p                           `Draw`, without candidates
    """
    params = request.sampling
    seed = secrets.randbelow(SEED_RANGE) if params.seed is None else params.seed
    is_short = 0 < params.top_k < vocab.size
    if params.grammar is None:
        if params.is_greedy:
            return Peak()
        is_rare = params.typical_p < 1 or params.xtc_probability > 0
        if not params.mirostat and not is_short and not is_rare:
            return Draw(params, seed, workspace)
    chain = Chain()
    try:
        if params.grammar is not None:
            add_grammar(chain, params, vocab)
        add_choice(chain, params, vocab, seed)
    except BaseException:
        chain.free()
        raise
    if params.grammar is not None:
        return GrammarChoice(chain, workspace, params.grammar_param)
    short = is_short and not params.mirostat
    return ChainChoice(chain, workspace, params.top_k if short else 0)


class Sampler:
    """Chooses the tokens of one sequence."""

    def __init__(self, request: Request, vocab: Vocab, workspace: Workspace) -> None:
        self._edits = Edits(request, vocab, workspace)
        try:
            self._choice = choice_of(request, vocab, workspace)
        except BaseException:
            self._edits.free()
            raise

    def sample(self, row: np.ndarray) -> int:
        """Choose from the logits of a row, float32 [vocab_size], and accept the choice.

        The row is changed while this runs, and is as before afterwards. Raises RequestError where
        the request's own rules leave nothing to choose.
        """
        if isinstance(self._choice, Peak):
            token = self._choice.choose(row)
            if self._edits.leaves(token):  # 10 µs less than to write bans and take them back
                self._edits.accept(token)
                return token
        done = self._edits.apply(row)
        try:
            token = self._choice.choose(row)
        finally:
            self._edits.undo(row, done)
        self._edits.accept(token)
        return token

    def survivors(self, logits: Sequence[float]) -> dict[int, float]:
        """Token id -> probability to be chosen from `logits`. Tests check filters so."""
        row = np.array(logits, np.float32)
        self._edits.apply(row)
        return self._choice.survivors(row)

    def free(self) -> None:
        """Release what is native; safe to call again."""
        self._edits.free()
        self._choice.free()


class Peak:
    """The token with the largest logit, the first of equal ones, as llama.cpp's greedy sampler."""

    def choose(self, row: np.ndarray) -> int:
        return int(row.argmax())

    def survivors(self, row: np.ndarray) -> dict[int, float]:
        return {self.choose(row): 1.0}

    def free(self) -> None:
        """Nothing here is native."""


class ChainChoice:
    """llama.cpp's filters, over the `shortlist` likeliest tokens or, with 0, over all.

    Which of equal logits at the border of top-k stay is llama.cpp's choice.
    """

    def __init__(self, chain: Chain, workspace: Workspace, shortlist: int) -> None:
        self._chain, self._workspace, self._shortlist = chain, workspace, shortlist

    def choose(self, row: np.ndarray) -> int:
        array = self._judge(row)
        return array.data[array.selected].id

    def _judge(self, row: np.ndarray) -> Any:
        """The candidates as the chain left them."""
        if self._shortlist:
            ids = likeliest(row, self._shortlist)
            array = self._workspace.candidates(row[ids], ids)
        else:
            array = self._workspace.candidates(row)
        self._chain.apply(array)
        return array

    def survivors(self, row: np.ndarray) -> dict[int, float]:
        array = self._judge(row)
        kept = [array.data[i] for i in range(array.size)]
        top = max(item.logit for item in kept)
        weights = {item.id: math.exp(item.logit - top) for item in kept}
        total = sum(weights.values())
        return {token: weight / total for token, weight in weights.items() if weight > 0}

    def free(self) -> None:
        self._chain.free()


class GrammarChoice(ChainChoice):
    """The same behind a grammar; raises where bans and grammar together leave no token.

    Then the best token is one that the grammar forbids, and accepting it would abort.
    """

    def __init__(self, chain: Chain, workspace: Workspace, param: str) -> None:
        super().__init__(chain, workspace, 0)
        self._param = param

    def choose(self, row: np.ndarray) -> int:
        began = time.perf_counter()
        array = self._judge(row)
        chosen = array.data[array.selected]
        if not math.isfinite(chosen.logit):
            raise RequestError("The grammar leaves no token to choose.", param=self._param)
        self._chain.accept(chosen.id)
        # The time of an ambiguous grammar grows by a factor with each token. It ends here, before
        # other sequences have to wait.
        if time.perf_counter() - began > _STRICT_BUDGET_S:
            raise RequestError("The grammar is too ambiguous to follow in time.", param=self._param)
        return chosen.id
