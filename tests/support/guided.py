"""Texts that a sampler writes from rows of random logits, under a constraint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.grammar.constraint import Constraint
from worker.llama.guides.guides import Guides
from worker.llama.sampling.sampler import Sampler
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab


class Writer:
    """Writes with one vocabulary; its compiled constraints stay.

    liked   pieces -> what is added to the logits of the tokens that spell them
    """

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        self.workspace = Workspace(vocab.size)
        self.guides = Guides(vocab)

    def sampler(self, constraint: Constraint, **params: Any) -> Sampler:
        """A sampler of one text."""
        given: dict[str, Any] = {"seed": 1, **params}
        sampling = SamplingParams(constraint=constraint, **given)
        request = Request(
            id="one", prompt=Prompt((5,)), params=GenerationParams(max_tokens=1, sampling=sampling)
        )
        return Sampler(request, self.vocab, self.workspace, self.guides)

    def takes(self, constraint: Constraint, text: str) -> bool:
        """Whether a whole answer may be this text. Raises RequestError."""
        matcher = self.guides.matcher_of(constraint).copy()
        try:
            for token in self.guides.spell(text.encode()):
                if not matcher.allows(token):
                    return False
                matcher.accept(token)
            return matcher.is_done or any(map(matcher.allows, self.vocab.end_tokens))
        finally:
            matcher.free()

    def write(
        self,
        constraint: Constraint,
        *,
        seed: int = 0,
        most: int = 2000,
        liked: Mapping[bytes, float] | None = None,
        ahead: bool = False,
        **params: Any,
    ) -> tuple[bytes, bool]:
        """(the text, whether it ended by itself), of `most` tokens at most.

        ahead: what must come is not asked for, and its rows are passed over
        """
        vocab, rng = self.vocab, np.random.default_rng(seed)
        likes = [(t, (liked or {}).get(piece, 0.0)) for t, piece in enumerate(vocab.pieces)]
        added = np.array([value for _, value in likes], np.float32)
        sampler, text = self.sampler(constraint, **params), b""
        try:
            coming: list[int] = []
            for _ in range(most):
                row = rng.normal(0, 2, vocab.size).astype(np.float32) + added
                token = coming.pop(0) if coming else sampler.sample(row)
                if ahead and not coming:
                    coming = sampler.ahead()
                if token in vocab.end_tokens:
                    return text, True
                text += vocab.pieces[token]
            return text, False
        finally:
            sampler.free()
