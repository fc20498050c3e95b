"""What the model says behind whole prompts, of the newest ones: who asks the same reads nothing."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from worker.engine.backend import Backend, OutputRow
from worker.engine.sequence import Sequence


class _Known(NamedTuple):
    """A prompt, and with what it is computed. tokens: int32"""

    key: bytes
    begin: int
    tokens: bytes


class PromptEnds:
    """Rows of logits behind the last tokens of prompts, float32 [vocab_size] each.

    Only of prompts whose cells have the bits that a worker which knows nothing would compute, and
    of those without pictures and sounds.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._rows: OrderedDict[_Known, np.ndarray] = OrderedDict()

    def keep(self, sequence: Sequence, row: OutputRow) -> None:
        """The whole prompt is computed, and this is the row of its last token."""
        slot, length, known = sequence.slot, sequence.num_prompt, _identity(sequence)
        if isinstance(row, np.ndarray) or slot is None or known is None:
            return
        if slot.length != length or not self._backend.kernels.is_whole(length, slot.num_wide):
            return
        if known not in self._rows:
            self._rows[known] = self._backend.logits(row).copy()
        self._rows.move_to_end(known)
        if len(self._rows) > self._backend.shape.num_ends:
            self._rows.popitem(last=False)

    def find(self, sequence: Sequence) -> np.ndarray | None:
        """What is kept of this prompt, for a sequence that waits; None: nothing."""
        known = _identity(sequence)
        if known is None or known not in self._rows:
            return None
        if sequence.prompt_logprobs is not None or sequence.is_suspect:
            return None
        self._rows.move_to_end(known)
        return self._rows[known]

    def forget(self) -> None:
        """All of them."""
        self._rows.clear()


def _identity(sequence: Sequence) -> _Known | None:
    """None: it has more than a prompt of tokens."""
    prompt = sequence.prompt
    if prompt.media or sequence.num_known != sequence.num_prompt:
        return None
    return _Known(prompt.key, prompt.begin, sequence.tokens[: sequence.num_prompt].tobytes())
