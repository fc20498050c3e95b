"""What any API asks for, in one neutral form: each API makes one of these and frames what comes.

an API's own struct -> ChatInput (chat only) -> Generation -> engine Requests -> Sequences
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec

from worker.api.intake.delivery import DIRECT, Delivery
from worker.api.intake.prompts import TextPrompt, Truncated
from worker.chat.reader import ChatReader, PlainReader
from worker.engine.request import GenerationParams, Request
from worker.errors import RequestError
from worker.limits import LOGPROBS, SEQUENCES
from worker.requests.prompts import ChatParts
from worker.requests.trace import CacheTrace
from worker.requests.tracer import PromptTracer


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts to continue, each `copies` times, of which the best `params.n` are answered.

    prompts    at least one
    best_of    copies of each prompt; None: as many as are answered
    reader     reads one answer; each has its own
    truncated  what was left out of the prompt; None: nothing
    warnings   what else was asked for and is not done, a sentence each; each API's answer has them
    left_out   media that the model does not get, a sentence each
    model      the name that the answer gives it
    priority   of its requests
    parts      what the one prompt was rendered from; None: it is no conversation's
    tracer     says what the cache gave, where the client asked for it
    delivery   how the answer reaches its client
    """

    prompts: tuple[TextPrompt, ...]
    params: GenerationParams = GenerationParams()
    best_of: int | None = None
    reader: Callable[[], ChatReader] = PlainReader
    truncated: Truncated | None = None
    warnings: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    model: str = ""
    priority: int = 0
    parts: ChatParts | None = None
    tracer: PromptTracer | None = None
    delivery: Delivery = DIRECT

    @property
    def cache_trace(self) -> CacheTrace | msgspec.UnsetType:
        """For the answer, once all sequences have ended."""
        trace = None if self.tracer is None else self.tracer.trace
        return msgspec.UNSET if trace is None else trace

    @property
    def copies(self) -> int:
        """Sequences of each prompt."""
        return self.params.n if self.best_of is None else self.best_of

    @property
    def num_prompt_tokens(self) -> int:
        return sum([len(prompt.tokens) for prompt in self.prompts])

    @property
    def multiplied_by(self) -> str:
        """The client's field that makes it more than one sequence."""
        if self.copies > self.params.n:
            return "best_of"
        return "n" if self.params.n > 1 else self.params.prompt_param

    def check(self) -> None:
        """Raise RequestError that names the first field that cannot be.

        What a single sequence must fulfil the engine checks.
        """
        n, copies, logprobs = self.params.n, self.copies, self.params.logprobs
        if not 1 <= n <= SEQUENCES.most:
            raise RequestError(f"n must be from 1 to {SEQUENCES.most}.", param="n")
        if not n <= copies <= SEQUENCES.most:
            raise RequestError(f"best_of must be from n to {SEQUENCES.most}.", param="best_of")
        count = len(self.prompts) * copies
        if count > SEQUENCES.most:
            raise RequestError(
                f"{count} continuations were asked for, {SEQUENCES.most} is the most.",
                param=self.multiplied_by,
            )
        if logprobs is not None and not 0 <= logprobs <= LOGPROBS.most:
            raise RequestError(f"logprobs must be from 0 to {LOGPROBS.most}.", param="logprobs")

    def requests(self) -> list[Request]:
        """One for each continuation, those of a prompt side by side. Raises RequestError."""
        self.check()
        name, relay, copies = uuid.uuid4().hex, self.delivery.relay, self.copies
        told = None if relay is None else relay.told
        found: list[Request] = []
        for prompt in self.prompts:
            for copy in range(copies):
                number = len(found)
                asked = Request(
                    id=f"{name}-{number}",
                    prompt=prompt,
                    params=self.params,
                    copy=copy,
                    priority=self.priority,
                    written=() if told is None else told.tokens.get(number, ()),
                    place=() if told is None else told.places.get(number, ()),
                    steps=() if told is None else told.steps.get(number, ()),
                )
                found.append(asked)
        return found
