"""GBNF as llama.cpp itself follows it, to compare with."""

from __future__ import annotations

import numpy as np

from tests.support.guided import Writer
from worker.llama.library import native
from worker.llama.sampling.chain import Chain


class LlamaGrammar:
    """Follows one text; each look reads the whole vocabulary."""

    def __init__(self, text: str, writer: Writer) -> None:
        self._size, self._workspace = writer.vocab.size, writer.workspace
        self._chain = Chain()
        sampler = native.llama_sampler_init_grammar(writer.vocab.handle, text.encode(), b"root")
        assert sampler, text
        self._chain.add(sampler, "grammar")

    def allowed(self) -> np.ndarray:
        """Which tokens may come next, one truth value each."""
        self._chain.apply(self._workspace.candidates(np.zeros(self._size, np.float32)))
        return np.isfinite(self._workspace.logits(self._size))

    def accept(self, token: int) -> None:
        """The token was written."""
        self._chain.accept(token)

    def free(self) -> None:
        """Release what is native."""
        self._chain.free()
