"""POST /v1/completions: continue a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import UNSET, UnsetType

from worker.api.answer.logprobs import (
    LogprobArrays,
    PromptLogprobs,
    SpelledIds,
    concatenate,
    mean_logprob,
    prompt_logprobs,
)
from worker.api.intake.bounds import (
    check_alternatives,
    prompt_logprobs_of,
    stops_of,
    tokens_of,
    truncates,
)
from worker.api.intake.constraints import not_held
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.api.intake.prompts import TextPrompt, infill_prompt, text_prompt, token_prompt
from worker.api.intake.sampling import sampling_of
from worker.api.openai.exchange import Answer, OpenAIExchange, tells
from worker.api.openai.schemas import Choice, Completion, CompletionRequest, Logprobs
from worker.budget import Budget
from worker.engine.output import TokenLogprob
from worker.engine.request import GenerationParams, check_length
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.errors import RequestError
from worker.limits import SEQUENCES

PARAM = "prompt"


def prompts_of(
    body: CompletionRequest, facts: ModelFacts, budget: Budget
) -> tuple[TextPrompt, ...]:
    """At least one Prompt. Raises RequestError that names the field."""
    given: Any = body.prompt
    if given is None:
        raise RequestError("prompt is missing.", param=PARAM, hint="Send a text.")
    if isinstance(given, str):
        return (_from_text(given, body, facts, budget),)
    if not given:
        raise RequestError("prompt is an empty list.", param=PARAM)
    if isinstance(given[0], int):
        check_length(len(given), facts.max_length, PARAM)  # before a million is looked at
    elif len(given) > SEQUENCES.most:
        raise RequestError(
            f"prompt has {len(given)} entries, {SEQUENCES.most} is the most.", param=PARAM
        )
    if all(isinstance(item, str) for item in given):
        return tuple(_from_text(text, body, facts, budget) for text in given)
    if body.suffix:
        raise RequestError("suffix needs a prompt of text.", param="suffix")
    if all(isinstance(item, int) for item in given):
        return (token_prompt(given, facts, PARAM),)
    if all(isinstance(item, list) for item in given):
        return tuple(token_prompt(tokens, facts, PARAM) for tokens in given)
    raise RequestError(
        "prompt mixes texts, token ids and lists.", param=PARAM, hint="Send one kind."
    )


def _from_text(text: str, body: CompletionRequest, facts: ModelFacts, budget: Budget) -> TextPrompt:
    special = body.add_special_tokens is not False
    if body.suffix:
        return infill_prompt(text, body.suffix, facts, PARAM, budget, add_special=special)
    return text_prompt(text, facts, PARAM, budget, add_special=special)


DEFAULT_MAX_TOKENS = 16  # the OpenAI API's


class Continuation(Answer[Choice]):
    """One continuation of a prompt."""

    def __init__(
        self,
        index: int,
        prompt: TextPrompt,
        arrays: LogprobArrays | None,
        echo: str | None,
        top: int,
        read_prompt: Callable[[Sequence[TokenLogprob]], PromptLogprobs] | None,
        *,
        shows_ids: bool = False,
    ) -> None:
        """
        index        in the events of a stream
        echo         what is told before the first text; None: the prompt's scores neither
        top          alternatives of each token
        read_prompt  makes of the prompt's scores what is told of them; None: nothing is
        shows_ids    the prompt's ids are told
        """
        self._echoes = echo is not None
        self._top = top
        self._read_prompt = read_prompt
        self._prompt_logprobs: PromptLogprobs | UnsetType = UNSET
        self._prompt_ids = prompt.tokens if shows_ids else UNSET
        self._untold = self._prompt_ids
        self._index = index
        self._prompt = prompt
        self._arrays = arrays
        self._echo = echo or ""
        self._texts: list[str] = []
        self._logprobs: list[Logprobs] = []
        self._scores: list[float] = []
        self._finish_reason: str | None = None

    def take(self, delta: Delta) -> list[Choice]:
        text = self._echo + delta.text
        self._echo = ""
        self._texts.append(text)
        self._finish_reason = delta.finish_reason
        self._scores += [score.logprob for score in delta.logprobs]
        if self._read_prompt is not None and delta.prompt_logprobs is not None:
            self._prompt_logprobs = self._read_prompt(delta.prompt_logprobs)
        arrays = None
        if self._arrays is not None:
            self._add_logprobs(self._arrays, delta)
            if arrays := self._arrays.take():
                self._logprobs.append(arrays)
        if not (text or arrays or tells(delta)):
            return []
        choice = Choice(text, self._index, arrays, delta.finish_reason)
        choice.prompt_token_ids, self._untold = self._untold, UNSET
        return [choice]

    def silent(self) -> Choice:
        return Choice("", self._index)

    def whole(self, index: int) -> Choice:
        choice = Choice(
            "".join(self._texts), index, concatenate(self._logprobs), self._finish_reason
        )
        choice.prompt_token_ids = self._prompt_ids
        choice.prompt_logprobs = self._prompt_logprobs
        return choice

    @property
    def score(self) -> float:
        """The mean logprob of the sampled tokens."""
        return mean_logprob(self._scores)

    def _add_logprobs(self, arrays: LogprobArrays, delta: Delta) -> None:
        if delta.prompt_logprobs is not None and self._echoes:
            tokens = self._prompt.tokens
            first, stop, _ = self._prompt.shown.indices(len(tokens))
            arrays.add(tokens[first], None)
            # The engine scored every prompt token but the first.
            for score in delta.prompt_logprobs[first : stop - 1]:
                top = score.top[: self._top]
                arrays.add(score.token, TokenLogprob(score.token, score.logprob, top))
        for score in delta.logprobs:
            arrays.add(score.token, score)


class CompletionExchange(OpenAIExchange[Choice]):
    """Continuations of texts."""

    prefix = "cmpl-"

    def __init__(
        self, generation: Generation, stream: Stream, body: CompletionRequest, facts: ModelFacts
    ) -> None:
        pieces, wants_scores = facts.vocab.pieces, _logprobs(body) is not None
        if body.return_tokens_as_token_ids:
            pieces = SpelledIds()

        read_prompt = None
        if (count := body.prompt_logprobs) is not None:
            read_prompt = partial(prompt_logprobs, pieces=facts.vocab.pieces, top=count)

        def answer(index: int) -> Continuation:
            prompt = generation.prompts[index // generation.copies]
            arrays = None
            if wants_scores:
                strip = bool(body.echo) and prompt.space_added
                arrays = LogprobArrays(pieces.__getitem__, strip_first=strip)
            return Continuation(
                index,
                prompt,
                arrays,
                prompt.text if body.echo else None,
                _logprobs(body) or 0,
                read_prompt,
                shows_ids=bool(body.return_token_ids),
            )

        super().__init__(
            generation, stream, body, [answer(index) for index in range(len(stream.ids))]
        )

    def event(self, choices: list[Choice], **more: Any) -> Completion:
        """A whole reply and an event have one shape."""
        return Completion(object="text_completion", choices=choices, **self.head, **more)

    reply = event


def generation_of(body: CompletionRequest, facts: ModelFacts, budget: Budget) -> Generation:
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
    default = facts.settings.n_predict
    max_tokens = tokens_of(
        max_tokens=body.max_tokens,
        n_predict=body.n_predict,
        default=DEFAULT_MAX_TOKENS if default is None else default,
    )
    sampling = sampling_of(body, facts, budget)
    prompts = prompts_of(body, facts, budget)
    logprobs = _logprobs(body)
    wanted = [prompt_logprobs_of(body.prompt_logprobs, stream=body.stream)]
    wanted += [logprobs] if body.echo else []
    params = GenerationParams(
        prompt_param=PARAM,
        sampling=sampling,
        max_tokens=max_tokens,
        stop=stops_of(body.stop),
        n=n,
        logprobs=0 if logprobs is None and best_of > n else logprobs,  # the best are chosen by them
        prompt_logprobs=max((count for count in wanted if count is not None), default=None),
        prompt_ranks=body.prompt_logprobs is not None,
        tells_progress=bool(body.stream and body.return_progress),
    )
    return Generation(
        prompts=prompts, params=params, best_of=best_of, warnings=not_held(sampling.constraint)
    )


def _logprobs(body: CompletionRequest) -> int | None:
    """Alternatives for each token; `true` asks for the likeliest one, as vLLM's clients do."""
    check_alternatives(n_probs=body.n_probs)
    if body.logprobs is None or body.logprobs is False:
        return body.n_probs or None
    return int(body.logprobs)
