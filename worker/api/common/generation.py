"""What any API asks for, in one neutral form: each API makes one of these and frames what comes.

an API's own struct -> Generation -> engine Requests -> Stream -> the API's own events
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import msgspec

from worker.api.common.prompts import Prompt, Truncated
from worker.engine.request import Request, SpanLimit
from worker.engine.sampling import SEED_RANGE, SamplingParams
from worker.engine.stream import Stream
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.limits import LOGPROBS, SEQUENCES
from worker.requests.following import follow


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts to continue, each `best_of` times, of which the best `n` are answered.

    prompts        at least one
    prompt_param   the client's field that the prompts were made from, to name in errors
    max_tokens     tokens to sample at most for each answer; None: until the model or the context
                   ends; 0: the prompt is only scored
    stop           an answer ends before the first of these; empty texts are skipped
    logprobs       likeliest alternatives to report for each token; None: no logprobs
    scores_prompt  logprobs are wanted for the prompt's tokens too
    tells_progress each step that reads a prompt says how far it is
    spelled        control tokens that are shown, each as these bytes
    limit          of a part of each answer
    truncated      what was left out of the prompt; None: nothing
    warnings       what else was asked for and is not done, a sentence each
    """

    prompts: tuple[Prompt, ...]
    prompt_param: str = "prompt"
    sampling: SamplingParams = SamplingParams()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    best_of: int = 1
    logprobs: int | None = None
    scores_prompt: bool = False
    tells_progress: bool = False
    spelled: Mapping[int, bytes] = {}
    limit: SpanLimit | None = None
    truncated: Truncated | None = None
    warnings: tuple[str, ...] = ()

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(len(prompt.tokens) for prompt in self.prompts)

    @property
    def multiplied_by(self) -> str:
        """The client's field that makes it more than one sequence."""
        if self.best_of > self.n:
            return "best_of"
        return "n" if self.n > 1 else self.prompt_param

    def check(self) -> None:
        """Raise RequestError that names the first field that cannot be.

        What a single sequence must fulfil the engine checks.
        """
        if not 1 <= self.n <= SEQUENCES.most:
            raise RequestError(f"n must be from 1 to {SEQUENCES.most}.", param="n")
        if not self.n <= self.best_of <= SEQUENCES.most:
            raise RequestError(f"best_of must be from n to {SEQUENCES.most}.", param="best_of")
        count = len(self.prompts) * self.best_of
        if count > SEQUENCES.most:
            raise RequestError(
                f"{count} continuations were asked for, {SEQUENCES.most} is the most.",
                param=self.multiplied_by,
            )
        if self.logprobs is not None and not 0 <= self.logprobs <= LOGPROBS.most:
            raise RequestError(f"logprobs must be from 0 to {LOGPROBS.most}.", param="logprobs")

    def requests(self, max_length: int) -> list[Request]:
        """One for each continuation, those of a prompt side by side. Raises RequestError.

        max_length: of a sequence, in tokens
        """
        self.check()
        name = uuid.uuid4().hex
        chosen = self.best_of > self.n  # by their logprobs
        tokens = [tuple(prompt.tokens) for prompt in self.prompts]
        return [
            Request(
                id=f"{name}-{place * self.best_of + copy}",
                prompt=tokens[place],
                max_tokens=max_length if self.max_tokens is None else self.max_tokens,
                sampling=self._sampling_of(copy),
                stop=tuple(text for text in self.stop if text),
                logprobs=0 if self.logprobs is None and chosen else self.logprobs,
                prompt_logprobs=self.logprobs if self.scores_prompt else None,
                prompt_param=self.prompt_param,
                tells_progress=self.tells_progress,
                checkpoints=prompt.checkpoints,
                spelled=self.spelled,
                limit=self.limit,
            )
            for place, prompt in enumerate(self.prompts)
            for copy in range(self.best_of)
        ]

    def _sampling_of(self, copy: int) -> SamplingParams:
        """Copies with one seed would all be the same text: each has its own."""
        seed = self.sampling.seed
        if seed is None or not copy:
            return self.sampling
        return msgspec.structs.replace(self.sampling, seed=(seed + copy) % SEED_RANGE)


class Running(msgspec.Struct, frozen=True):
    """A generation that the engine has accepted.

    ids     of its sequences, in order: the continuations of the first prompt, of the second, ...
    stream  what the engine says of them
    """

    generation: Generation
    ids: tuple[str, ...]
    stream: Stream


def run(generation: Generation, loaded: Loaded) -> Running:
    """Hand it to the engine. Raises RequestError, QueueFullError or UnavailableError."""
    requests = generation.requests(loaded.backend.max_length)
    stream = loaded.engine.submit(requests, param=generation.multiplied_by)
    follow(stream, requests, generation.best_of, loaded.engine)
    return Running(generation, tuple(request.id for request in requests), stream)
