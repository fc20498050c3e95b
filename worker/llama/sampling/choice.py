"""Which way a token is chosen from a row, where no constraint has a say."""

from __future__ import annotations

import secrets
from typing import Any, Protocol

import numpy as np

from worker.engine.likeliest import likeliest
from worker.engine.sampling import SEED_RANGE, SamplingParams
from worker.llama.sampling.chain import Chain, add_choice
from worker.llama.sampling.draw import Draw
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab

# Tokens of a vocabulary that llama.cpp writes as candidates faster than numpy finds the likeliest.
# Behind a decode, which leaves nothing in the CPU's caches, each line of Python costs microseconds:
# top-k takes 120 µs instead of 240 with 32,000 tokens. With 150,000 it takes 350 instead of 320,
# and for each of eight rows 240 instead of 130.
_FEW = 1 << 16
# Logits of two tokens: from one alone nothing would be drawn.
_ALIKE = np.zeros(2, np.float32)


class TokenChoice(Protocol):
    """Chooses from logits that biases, bans and penalties have changed already, all or some.

    is_plain   whether a token's share in the choice depends on its own logit alone
    """

    is_plain: bool

    @property
    def place(self) -> tuple[float, ...]:
        """What its draws have used up, for `resume`."""
        ...

    def choose(self, row: np.ndarray) -> int:
        """A token id; row: float32 [vocab_size]"""
        ...

    def follow(self, token: int) -> None:
        """Another one has chosen this token."""
        ...

    def resume(self, place: tuple[float, ...]) -> None:
        """Draw on as one of the same seed that is at this place."""
        ...

    def free(self) -> None: ...


def choice_of(
    params: SamplingParams, seed: int | None, vocab: Vocab, workspace: Workspace
) -> TokenChoice:
    """The one rule which way a request goes.

    greedy                                     the largest logit
    mirostat, filters that look at all tokens,
    or come in another order than usual        llama.cpp, with all tokens as candidates
    top-k                                      llama.cpp, with few candidates; with all of them in
                                               one native call where there are few tokens
    temperature, top-p, min-p                  `Draw`, without candidates

    seed: as in `SamplingParams`
    """
    seed = secrets.randbelow(SEED_RANGE) if seed is None else seed
    is_short = 0 < params.top_k < vocab.size
    if params.is_greedy:
        return Peak()
    if not params.mirostat and not is_short and not params.needs_all:
        return Draw(params, seed, workspace)
    chain = Chain()
    try:
        add_choice(chain, params, vocab, seed)
    except BaseException:
        chain.free()
        raise
    short = is_short and not params.mirostat and params.in_order and params.top_n_sigma <= 0
    return ChainChoice(chain, workspace, params.top_k if short else 0)


class Peak:
    """The token with the largest logit, the first of equal ones, as llama.cpp's greedy sampler."""

    is_plain = True

    @property
    def place(self) -> tuple[float, ...]:
        return ()

    def choose(self, row: np.ndarray) -> int:
        """The id of the largest logit; row: float32 [vocab_size]"""
        return int(row.argmax())

    def follow(self, token: int) -> None:
        """Nothing here depends on tokens."""

    def resume(self, place: tuple[float, ...]) -> None:
        """Nothing is drawn."""

    def free(self) -> None:
        """Nothing here is native."""


class ChainChoice:
    """llama.cpp's filters, over the `shortlist` likeliest tokens or, with 0, over all.

    Which of equal logits at the border of top-k stay is llama.cpp's choice.

    is_native  whether `choose_at` is faster than `choose`
    """

    is_plain = False

    def __init__(self, chain: Chain, workspace: Workspace, shortlist: int) -> None:
        self._chain, self._workspace, self._shortlist = chain, workspace, shortlist
        self._num_draws = 0
        self.is_native = not shortlist or workspace.vocab_size <= _FEW

    def choose(self, row: np.ndarray) -> int:
        """A token id; row: float32 [vocab_size]"""
        array = self._judge(row)
        token = array.data[array.selected].id
        self._chain.accept(token)
        self._num_draws += 1
        return token

    def choose_at(self, context: Any, row: int) -> int:
        """The same from a context's output row, in one native call."""
        self._num_draws += 1
        return self._chain.choose(self._workspace.chain, context, row)

    @property
    def place(self) -> tuple[float, ...]:
        return (self._num_draws,)

    def follow(self, token: int) -> None:
        self._chain.accept(token)

    def resume(self, place: tuple[float, ...]) -> None:
        """Only what draws last is at that place then: Mirostat, XTC and adaptive-p begin anew."""
        self._num_draws = int(place[0])
        for _ in range(self._num_draws):
            self._chain.draw(self._workspace.candidates(_ALIKE))

    def _judge(self, row: np.ndarray) -> Any:
        """The candidates as the chain left them."""
        if self._shortlist:
            ids = likeliest(row, self._shortlist)
            array = self._workspace.candidates(row[ids], ids)
        else:
            array = self._workspace.candidates(row)
        self._chain.apply(array)
        return array

    def free(self) -> None:
        self._chain.free()


class Remains:
    """What the filters leave of a row, by a chain like the one that chooses, of the same seed."""

    def __init__(
        self, params: SamplingParams, seed: int, vocab: Vocab, workspace: Workspace
    ) -> None:
        self._workspace, self._is_greedy = workspace, params.is_greedy
        self._chain = Chain()
        add_choice(self._chain, params, vocab, seed)

    def of(self, row: np.ndarray, token: int) -> np.ndarray:
        """Logits, -inf where nothing is left. token: that was chosen; both rows are
        float32 [vocab_size]"""
        left = np.full_like(row, -np.inf)
        if self._is_greedy:
            left[token] = 0.0
            return left
        array = self._workspace.candidates(row)
        self._chain.apply(array)
        self._chain.accept(token)
        left[self._workspace.ids(array.size)] = self._workspace.logits(array.size)
        return left

    def free(self) -> None:
        """Release what is native; safe to call again."""
        self._chain.free()
