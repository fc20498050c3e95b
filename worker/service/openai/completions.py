"""POST /v1/completions: the body to engine requests, the deltas back to OpenAI's shapes."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import msgspec
from litestar import Request as HttpRequest
from litestar import post
from litestar.types import ASGIApp

from worker.engine.request import MAX_LOGPROBS, Request
from worker.engine.sequence import Delta
from worker.errors import RequestError
from worker.lifecycle.worker import Worker
from worker.service.body import read_json
from worker.service.openai.answer import OpenAIExchange, tells
from worker.service.openai.completion_schemas import Choice, Completion, CompletionRequest
from worker.service.openai.logprobs import LogprobArrays, mean_logprob
from worker.service.prompts import MAX_CHOICES, Prompt, prompts_of
from worker.service.sampling import sampling_of

DEFAULT_MAX_TOKENS = 16  # the OpenAI API's


class ChoiceState:
    """One continuation as it grows."""

    def __init__(self, index: int, prompt: Prompt, arrays: LogprobArrays | None, echo: str) -> None:
        self.index = index
        self.prompt = prompt
        self.arrays = arrays
        self.echo = echo
        self.text: list[str] = []
        self.scores: list[float] = []
        self.finish_reason: str | None = None

    def add(self, delta: Delta) -> str:
        """Take one delta in; the text that it makes visible."""
        text = delta.text
        if self.echo:
            text, self.echo = self.echo + text, ""
        if self.arrays is not None:
            if delta.prompt_logprobs is not None:
                self.arrays.add(self.prompt.shown[0], None)
                # The engine scored every prompt token but the first; an added BOS is not shown.
                shown = len(self.prompt.shown) - 1
                for score in delta.prompt_logprobs[len(delta.prompt_logprobs) - shown :]:
                    self.arrays.add(score.token, score)
            if delta.token is not None and delta.logprob is not None:
                self.arrays.add(delta.token, delta.logprob)
        if delta.logprob is not None:
            self.scores.append(delta.logprob.logprob)
        self.finish_reason = delta.finish_reason
        self.text.append(text)
        return text


class CompletionExchange(OpenAIExchange):
    """Continuations of texts."""

    def __init__(
        self,
        worker: Worker,
        body: CompletionRequest,
        prompts: list[Prompt],
        requests: list[Request],
    ) -> None:
        self._n = body.n or 1
        self._best_of = body.best_of or self._n
        pieces = worker.backend.pieces
        self._choices = {
            request.id: ChoiceState(
                index,
                prompts[index // self._best_of],
                _arrays(body, prompts[index // self._best_of], pieces),
                prompts[index // self._best_of].text if body.echo else "",
            )
            for index, request in enumerate(requests)
        }
        super().__init__(
            worker,
            requests,
            prompt_tokens=sum(len(prompt.tokens) for prompt in prompts),
            streaming=bool(body.stream),
            options=body.stream_options,
        )

    def event(self, delta: Delta) -> Choice | None:
        """What a delta adds to its choice."""
        choice = self._choices[delta.id]
        text = choice.add(delta)
        arrays = choice.arrays.take() if choice.arrays else None
        if not (text or arrays or tells(delta)):
            return None
        return Choice(text, choice.index, arrays, delta.finish_reason)

    def reply(self, choices: list[Choice], **more: Any) -> Completion:
        """A whole reply and an event have one shape."""
        return Completion(object="text_completion", choices=choices, **self.head, **more)

    async def body(self) -> Completion:
        """The whole reply, the best `n` of `best_of` for each prompt."""
        while self.stream.is_running:
            for delta in await self.stream.take():
                self.usage.add(delta)
                self._choices[delta.id].add(delta)
                if delta.prompt_logprobs:
                    await asyncio.sleep(0)  # a long prompt's take milliseconds
        states = list(self._choices.values())
        chosen: list[ChoiceState] = []
        for first in range(0, len(states), self._best_of):
            group = states[first : first + self._best_of]
            if self._best_of > self._n:
                group.sort(key=lambda state: -mean_logprob(state.scores))
            chosen += group[: self._n]
        return self.reply(
            [
                Choice(
                    "".join(state.text),
                    index,
                    state.arrays.take() if state.arrays else None,
                    state.finish_reason,
                )
                for index, state in enumerate(chosen)
            ],
            usage=self.usage.usage(),
            timings=self.usage.timings(),
        )


def _arrays(body: CompletionRequest, prompt: Prompt, pieces: list[bytes]) -> LogprobArrays | None:
    if not _wants_arrays(body):
        return None
    return LogprobArrays(pieces.__getitem__, strip_first=bool(body.echo) and prompt.space_added)


def _wants_arrays(body: CompletionRequest) -> bool:
    return body.logprobs is not None and body.logprobs is not False


def requests_of(body: CompletionRequest, prompts: list[Prompt], worker: Worker) -> list[Request]:
    """One engine request for each prompt and each of its continuations."""
    n = body.n if body.n is not None else 1
    best_of = body.best_of if body.best_of is not None else n
    if not 1 <= n <= MAX_CHOICES:
        raise RequestError(f"n must be from 1 to {MAX_CHOICES}.", param="n")
    if not n <= best_of <= MAX_CHOICES:
        raise RequestError(f"best_of must be from n to {MAX_CHOICES}.", param="best_of")
    if body.stream and best_of > n:
        raise RequestError("best_of cannot be streamed.", param="best_of")
    if len(prompts) * best_of > MAX_CHOICES:
        raise RequestError(
            f"{len(prompts) * best_of} continuations were asked for, {MAX_CHOICES} is the most.",
            param="prompt",
        )
    max_tokens = body.max_tokens if body.max_tokens is not None else body.n_predict
    if max_tokens is None:
        max_tokens = DEFAULT_MAX_TOKENS
    if max_tokens == -1:  # llama-server: until the model or the context ends
        max_tokens = worker.backend.max_length
    if max_tokens < 0:
        raise RequestError("max_tokens must not be negative.", param="max_tokens")
    if max_tokens == 0 and not body.echo:
        raise RequestError("max_tokens 0 needs echo.", param="max_tokens")
    logprobs = None
    if _wants_arrays(body):
        logprobs = 1 if body.logprobs is True else int(body.logprobs or 0)
        if not 0 <= logprobs <= MAX_LOGPROBS:
            raise RequestError(f"logprobs must be from 0 to {MAX_LOGPROBS}.", param="logprobs")
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    sampling = sampling_of(body, worker)
    base = f"cmpl-{uuid.uuid4().hex}"
    requests: list[Request] = []
    for prompt in prompts:
        for copy in range(best_of):
            seed = sampling.seed
            if seed is not None and copy:  # copies with one seed would all be the same text
                seed = (seed + copy) % (2**32)
            requests.append(
                Request(
                    id=f"{base}-{len(requests)}",
                    prompt=tuple(prompt.tokens),
                    max_tokens=max_tokens,
                    sampling=msgspec.structs.replace(sampling, seed=seed),
                    stop=tuple(text for text in stop if text),
                    logprobs=0 if logprobs is None and best_of > n else logprobs,
                    prompt_logprobs=logprobs if body.echo else None,
                )
            )
    return requests


def completions_route(worker: Worker) -> Any:
    """The route, bound to its worker."""

    @post("/v1/completions", status_code=200, summary="Continue a text (OpenAI completions)")
    async def completions(request: HttpRequest[Any, Any, Any]) -> ASGIApp:
        body = await read_json(request, CompletionRequest)
        prompts = await asyncio.to_thread(prompts_of, body, worker)
        requests = await asyncio.to_thread(requests_of, body, prompts, worker)
        return CompletionExchange(worker, body, prompts, requests)

    return completions
