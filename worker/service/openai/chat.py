"""POST /v1/chat/completions and /apply-template: a conversation by the file's own template."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Request as HttpRequest
from litestar import Response, post
from litestar.types import ASGIApp

from worker.chat.template import ChatTemplate
from worker.engine.output import TokenLogprob
from worker.engine.request import MAX_LOGPROBS
from worker.engine.sequence import Delta
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.service.body import read_json
from worker.service.checkpoints import checkpoints_of
from worker.service.errors import json_response
from worker.service.generation import Generation, Running, run
from worker.service.openai.chat_schemas import (
    ChatChoice,
    ChatCompletion,
    ChatLogprobs,
    ChatRequest,
    Message,
    TemplateReply,
    TokenScore,
    TopToken,
)
from worker.service.openai.conversation import PARAM, limit_of, prompt_of, text_of
from worker.service.openai.exchange import Answer, OpenAIExchange, tells
from worker.service.openai.limits import stops_of
from worker.service.openai.logprobs import token_text
from worker.service.sampling import sampling_of

ROLE = "assistant"


class Turn(Answer[ChatChoice]):
    """The assistant's turn in one conversation; its role comes with its first token."""

    def __init__(self, index: int, pieces: Sequence[bytes], *, scores: bool) -> None:
        """index: in the events of a stream; scores: whether logprobs are told."""
        self._index = index
        self._pieces = pieces
        self._wants_scores = scores
        self._texts: list[str] = []
        self._scores: list[TokenScore] = []
        self._finish_reason: str | None = None

    def take(self, delta: Delta) -> list[ChatChoice]:
        """One event for each token."""
        if not tells(delta):
            return []
        role = None if self._texts else ROLE
        self._texts.append(delta.text)
        self._finish_reason = delta.finish_reason
        scores: list[TokenScore] = []
        if self._wants_scores and delta.logprob is not None:
            scores.append(self._score(delta.logprob))
            self._scores += scores
        return [
            ChatChoice(
                index=self._index,
                delta=Message(role, delta.text),
                logprobs=ChatLogprobs(scores) if self._wants_scores else None,
                finish_reason=delta.finish_reason,
            )
        ]

    def whole(self, index: int) -> ChatChoice:
        """The message."""
        return ChatChoice(
            index=index,
            message=Message(ROLE, "".join(self._texts)),
            logprobs=ChatLogprobs(self._scores) if self._wants_scores else None,
            finish_reason=self._finish_reason,
        )

    def _score(self, score: TokenLogprob) -> TokenScore:
        top = [TopToken(*self._text(token), logprob) for token, logprob in score.top]
        return TokenScore(*self._text(score.token), score.logprob, top)

    def _text(self, token: int) -> tuple[str, list[int]]:
        piece = self._pieces[token]
        return token_text(piece), list(piece)


class ChatExchange(OpenAIExchange[ChatChoice]):
    """Answers to one conversation."""

    def __init__(self, running: Running, body: ChatRequest, loaded: Loaded) -> None:
        pieces, scores = loaded.backend.pieces, bool(body.logprobs)
        super().__init__(
            running,
            [Turn(index, pieces, scores=scores) for index in range(len(running.ids))],
            loaded,
            prefix="chatcmpl-",
            streaming=bool(body.stream),
            options=body.stream_options,
        )

    def event(self, choices: list[ChatChoice], **more: Any) -> ChatCompletion:
        """A part of the answer."""
        return ChatCompletion(object="chat.completion.chunk", choices=choices, **self.head, **more)

    def reply(self, choices: list[ChatChoice], **more: Any) -> ChatCompletion:
        """The whole answer."""
        return ChatCompletion(object="chat.completion", choices=choices, **self.head, **more)


def generation_of(body: ChatRequest, template: ChatTemplate, loaded: Loaded) -> Generation:
    """What the body asks for. Raises RequestError that names the field; blocks."""
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs.", param="top_logprobs")
    if not 0 <= (body.top_logprobs or 0) <= MAX_LOGPROBS:
        raise RequestError(f"top_logprobs must be from 0 to {MAX_LOGPROBS}.", param="top_logprobs")
    n = 1 if body.n is None else body.n
    max_tokens = limit_of(body)
    conversation, prompt, truncated = prompt_of(body, template, loaded)
    checkpoints = checkpoints_of(conversation, prompt.tokens, loaded)
    return Generation(
        prompts=(msgspec.structs.replace(prompt, checkpoints=checkpoints),),
        prompt_param=PARAM,
        sampling=sampling_of(body, loaded),
        max_tokens=max_tokens,
        stop=stops_of(body.stop),
        n=n,
        best_of=n,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        truncated=truncated,
    )


@post("/v1/chat/completions", status_code=200, summary="Answer in a conversation (OpenAI)")
async def chat(
    request: HttpRequest[Any, Any, Any], loaded: Loaded, template: ChatTemplate
) -> ASGIApp:
    """The whole answer at once, or its events."""
    body = await read_json(request, ChatRequest)
    generation = await asyncio.to_thread(generation_of, body, template, loaded)
    return ChatExchange(run(generation, loaded), body, loaded)


@post("/apply-template", status_code=200, summary="Messages to the prompt's text")
async def apply_template(
    request: HttpRequest[Any, Any, Any], loaded: Loaded, template: ChatTemplate
) -> Response[bytes]:
    """What the model would read."""
    body = await read_json(request, ChatRequest)
    text = await asyncio.to_thread(text_of, body, template, loaded)
    return json_response(TemplateReply(text))
