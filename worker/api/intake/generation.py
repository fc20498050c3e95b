"""What any API asks for, in one neutral form: each API makes one of these and frames what comes.

an API's own struct -> ChatInput (chat only) -> Generation -> engine Requests -> Sequences
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import msgspec

from worker.api.intake.prompts import TextPrompt, Truncated
from worker.chat.reader import ChatReader, PlainReader
from worker.engine.request import GenerationParams, Request
from worker.engine.stream import Stream
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.limits import LOGPROBS, SEQUENCES
from worker.requests.record import current
from worker.requests.work import RequestWork


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts to continue, each `copies` times, of which the best `params.n` are answered.

    prompts    at least one
    best_of    copies of each prompt; None: as many as are answered
    reader     reads one answer; each has its own
    truncated  what was left out of the prompt; None: nothing
    warnings   what else was asked for and is not done, a sentence each
    model      the name that the answer gives it
    """

    prompts: tuple[TextPrompt, ...]
    params: GenerationParams = GenerationParams()
    best_of: int | None = None
    reader: Callable[[], ChatReader] = PlainReader
    truncated: Truncated | None = None
    warnings: tuple[str, ...] = ()
    model: str = ""

    @property
    def copies(self) -> int:
        """Sequences of each prompt."""
        return self.params.n if self.best_of is None else self.best_of

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(prompt.tokens) for prompt in self.prompts)

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
        name, copies = uuid.uuid4().hex, self.copies
        return [
            Request(
                id=f"{name}-{place * copies + copy}", prompt=prompt, params=self.params, copy=copy
            )
            for place, prompt in enumerate(self.prompts)
            for copy in range(copies)
        ]


def run(generation: Generation, loaded: Loaded) -> Stream:
    """Hand it to the engine, and tell the record of the request at hand.

    Raises RequestError, QueueFullError or UnavailableError. The stream's ids are those of the
    continuations of the first prompt, of the second, ...
    """
    requests = generation.requests()
    loaded.adapters.check_key(requests[0].prompt.key)
    return submitted(requests, loaded, generation.multiplied_by, generation.copies)


def submitted(requests: Sequence[Request], loaded: Loaded, param: str, copies: int = 1) -> Stream:
    """Those of a prompt side by side, `copies` of each. Raises as `run`; `param`: as there"""
    stream = loaded.engine.submit(requests, param=param)
    record = current()
    if record is not None:
        record.follow(RequestWork(stream, requests, copies, loaded.engine))
    return stream
