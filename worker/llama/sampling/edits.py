"""What a request changes in a row before anything is chosen: few tokens of many."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence, Set

import numpy as np

from worker.engine.request import Request
from worker.llama.sampling.chain import Chain, add_penalties
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab

# Token ids of a row, and the values that belong there.
Places = tuple[np.ndarray, np.ndarray]


class Edits:
    """Biases and bans, then penalties and DRY. They are written into the row and taken back.

    Penalties and DRY are llama.cpp's own. They see only the tokens that the window or the answer
    holds, because they change no others.
    End tokens are banned until `min_tokens` tokens have been sampled.
    """

    def __init__(self, request: Request, vocab: Vocab, workspace: Workspace) -> None:
        params = request.params.sampling
        ends = sorted(vocab.end_tokens)
        banned = [*vocab.suppressed, *(ends if params.ignore_eos else ())]
        bias: dict[int, float] = {}
        for token, value in [*params.logit_bias, *dict.fromkeys(banned, -math.inf).items()]:
            bias[token] = bias.get(token, 0.0) + value
        self._fixed = _places(list(bias), list(bias.values()))
        self._ends = _places(ends, [-math.inf] * len(ends))
        self._banned = _places([], [])  # next, and once
        self._left = 0 if params.ignore_eos else params.min_tokens
        self._workspace = workspace
        self._penalties = Chain()
        history = tuple(t for t in request.prompt.tokens[-vocab.max_history :] if t >= 0)
        try:
            window = add_penalties(self._penalties, params, vocab, history)
        except BaseException:
            self.free()
            raise
        self._recent = Recent(window, history)
        self._weighs_written = params.weighs_written
        self._written: set[int] = set()

    def apply(self, row: np.ndarray) -> list[Places]:
        """Change `row`, float32 [vocab_size]; what `undo` needs."""
        done: list[Places] = []
        ids, bias = self._fixed
        if len(ids):
            done.append((ids, row[ids]))
            row[ids] += bias
        if self._recent.counts or self._written:
            ids = self._recent.ids(self._written)
            done.append((ids, row[ids]))
            array = self._workspace.candidates(row[ids], ids)
            self._penalties.apply(array)
            row[ids] = self._workspace.logits(len(ids))
        if len(self._banned[0]):
            ids, banned = self._banned
            done.append((ids, row[ids]))
            row[ids] = banned
        if self._left:
            ids, banned = self._ends
            done.append((ids, row[ids]))
            row[ids] = banned
        return done

    def undo(self, row: np.ndarray, done: Sequence[Places]) -> None:
        """Give `row` its own values back: others read them. row: float32 [vocab_size]"""
        for ids, values in reversed(done):
            row[ids] = values

    def ban(self, tokens: Sequence[int]) -> None:
        """These may not come next."""
        self._banned = _places([*tokens], [-math.inf] * len(tokens))

    def accept(self, token: int) -> None:
        if len(self._banned[0]):
            self.ban(())
        self._left -= self._left > 0
        if self._recent.window or self._weighs_written:
            self._penalties.accept(token)
        if self._recent.window:
            self._recent.add(token)
        if self._weighs_written:
            self._written.add(token)

    def free(self) -> None:
        """Release what is native; safe to call again."""
        self._penalties.free()


class Recent:
    """The last `window` tokens of a text, each id once."""

    def __init__(self, window: int, history: tuple[int, ...]) -> None:
        self.window = window
        self._tokens = deque(history[-window:] if window else (), window)
        self.counts = Counter(self._tokens)

    def add(self, token: int) -> None:
        """One more token; the oldest leaves."""
        if len(self._tokens) == self.window:
            oldest = self._tokens[0]
            self.counts[oldest] -= 1
            if not self.counts[oldest]:
                del self.counts[oldest]
        self._tokens.append(token)
        self.counts[token] += 1

    def ids(self, others: Set[int]) -> np.ndarray:
        """Each id once, those of others too, in any order; int64 [n]."""
        found = self.counts.keys() | others if others else self.counts.keys()
        return np.fromiter(found, np.intp, len(found))


def _places(ids: list[int], values: list[float]) -> Places:
    return np.array(ids, np.intp), np.array(values, np.float32)
