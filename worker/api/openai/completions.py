"""POST /v1/completions: continue a text."""

from __future__ import annotations

from typing import Any

from litestar import Request as HttpRequest
from litestar import post
from litestar.types import ASGIApp

from worker.api.common.constraints import not_held
from worker.api.common.generation import Generation, Running, run
from worker.api.common.limits import check_alternatives, stops_of, tokens_of, truncates
from worker.api.common.logprobs import LogprobArrays, joined, mean_logprob
from worker.api.common.preparing import Preparing
from worker.api.common.prompts import Prompt
from worker.api.common.sampling import sampling_of
from worker.api.openai.completion_schemas import Choice, Completion, CompletionRequest, Logprobs
from worker.api.openai.exchange import Answer, OpenAIExchange, tells
from worker.api.openai.prompts import PARAM, prompts_of
from worker.engine.sequence import Delta
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded

DEFAULT_MAX_TOKENS = 16  # the OpenAI API's


class Continuation(Answer[Choice]):
    """One continuation of a prompt."""

    def __init__(self, index: int, prompt: Prompt, arrays: LogprobArrays | None, echo: str) -> None:
        """index: in the events of a stream; echo: what is told before the first text."""
        self._index = index
        self._prompt = prompt
        self._arrays = arrays
        self._echo = echo
        self._texts: list[str] = []
        self._logprobs: list[Logprobs] = []
        self._scores: list[float] = []
        self._finish_reason: str | None = None

    def take(self, delta: Delta) -> list[Choice]:
        """One event for each token."""
        text = self._echo + delta.text
        self._echo = ""
        self._texts.append(text)
        self._finish_reason = delta.finish_reason
        if delta.logprob is not None:
            self._scores.append(delta.logprob.logprob)
        arrays = None
        if self._arrays is not None:
            self._add_logprobs(self._arrays, delta)
            if arrays := self._arrays.take():
                self._logprobs.append(arrays)
        if not (text or arrays or tells(delta)):
            return []
        return [Choice(text, self._index, arrays, delta.finish_reason)]

    def silent(self) -> Choice:
        """No text."""
        return Choice("", self._index)

    def whole(self, index: int) -> Choice:
        """The text with all that was told of it."""
        return Choice("".join(self._texts), index, joined(self._logprobs), self._finish_reason)

    @property
    def score(self) -> float:
        """The mean logprob of the sampled tokens."""
        return mean_logprob(self._scores)

    def _add_logprobs(self, arrays: LogprobArrays, delta: Delta) -> None:
        if delta.prompt_logprobs is not None:
            arrays.add(self._prompt.shown[0], None)
            # The engine scored every prompt token but the first; an added BOS is not shown.
            shown = len(self._prompt.shown) - 1
            for score in delta.prompt_logprobs[len(delta.prompt_logprobs) - shown :]:
                arrays.add(score.token, score)
        if delta.token is not None and delta.logprob is not None:
            arrays.add(delta.token, delta.logprob)


class CompletionExchange(OpenAIExchange[Choice]):
    """Continuations of texts."""

    def __init__(self, running: Running, body: CompletionRequest, loaded: Loaded) -> None:
        generation, pieces = running.generation, loaded.backend.pieces

        def answer(index: int) -> Continuation:
            prompt = generation.prompts[index // generation.best_of]
            arrays = None
            if generation.logprobs is not None:
                strip = generation.scores_prompt and prompt.space_added
                arrays = LogprobArrays(pieces.__getitem__, strip_first=strip)
            return Continuation(index, prompt, arrays, prompt.text if body.echo else "")

        super().__init__(
            running,
            [answer(index) for index in range(len(running.ids))],
            loaded,
            prefix="cmpl-",
            streaming=bool(body.stream),
            options=body.stream_options,
        )

    def event(self, choices: list[Choice], **more: Any) -> Completion:
        """A whole reply and an event have one shape."""
        return Completion(object="text_completion", choices=choices, **self.head, **more)

    reply = event


def generation_of(body: CompletionRequest, loaded: Loaded) -> Generation:
    """What the body asks for. Raises RequestError that names the field; tokenises, so it blocks."""
    if truncates(body.truncation):
        raise RequestError(
            "truncation auto drops old turns, and a text has none.",
            param="truncation",
            hint="Use /v1/chat/completions.",
        )
    n = 1 if body.n is None else body.n
    best_of = n if body.best_of is None else body.best_of
    if body.stream and best_of > n:
        raise RequestError("best_of cannot be streamed.", param="best_of")
    max_tokens = tokens_of(
        max_tokens=body.max_tokens, n_predict=body.n_predict, default=DEFAULT_MAX_TOKENS
    )
    sampling = sampling_of(body, loaded)
    return Generation(
        prompts=prompts_of(body, loaded),
        prompt_param=PARAM,
        sampling=sampling,
        warnings=not_held(sampling.constraint),
        max_tokens=max_tokens,
        stop=stops_of(body.stop),
        n=n,
        best_of=best_of,
        logprobs=_logprobs(body.logprobs, body.n_probs),
        scores_prompt=bool(body.echo),
        tells_progress=bool(body.stream and body.return_progress),
    )


def _logprobs(asked: int | bool | None, n_probs: int | None) -> int | None:
    """Alternatives for each token; `true` asks for the likeliest one, as vLLM's clients do."""
    check_alternatives(n_probs=n_probs)
    if asked is None or asked is False:
        return n_probs or None
    return int(asked)


@post("/v1/completions", status_code=200, summary="Continue a text (OpenAI completions)")
async def completions(
    request: HttpRequest[Any, Any, Any], loaded: Loaded, preparing: Preparing
) -> ASGIApp:
    """The whole text at once, or its events."""
    body = await preparing.body(request, CompletionRequest, loaded)
    generation = await preparing.make(request, body, loaded, generation_of, body, loaded)
    return CompletionExchange(run(generation, loaded), body, loaded)
