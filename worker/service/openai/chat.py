"""POST /v1/chat/completions and /apply-template: a conversation by the file's own template."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from litestar import Request as HttpRequest
from litestar import Response, post
from litestar.types import ASGIApp

from worker.chat.template import ChatTemplate
from worker.engine.output import TokenLogprob
from worker.engine.request import Request
from worker.engine.sequence import Delta
from worker.errors import RequestError
from worker.lifecycle.worker import Worker
from worker.service.body import read_json
from worker.service.errors import json_response
from worker.service.openai.answer import OpenAIExchange, tells
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
from worker.service.openai.completion_schemas import CompletionRequest, SamplingFields
from worker.service.openai.completions import requests_of
from worker.service.openai.conversation import prompt_of, render, template_of
from worker.service.openai.logprobs import token_text
from worker.service.prompts import Prompt

ROLE = "assistant"


class ChatExchange(OpenAIExchange):
    """Answers to one conversation; the role comes with the first token of each."""

    def __init__(
        self, worker: Worker, body: ChatRequest, prompt: Prompt, requests: list[Request]
    ) -> None:
        self._scores = bool(body.logprobs)
        self._pieces = worker.backend.pieces
        self._indices = {request.id: index for index, request in enumerate(requests)}
        self._silent = set(self._indices)
        super().__init__(
            worker,
            requests,
            prefix="chat",
            prompt_tokens=len(prompt.tokens),
            streaming=bool(body.stream),
            options=body.stream_options,
        )

    def event(self, delta: Delta) -> ChatChoice | None:
        """What a delta adds to its answer."""
        if not tells(delta):
            return None
        role = ROLE if delta.id in self._silent else None
        self._silent.discard(delta.id)
        return ChatChoice(
            index=self._indices[delta.id],
            delta=Message(role, delta.text),
            logprobs=self._logprobs([delta]),
            finish_reason=delta.finish_reason,
        )

    def reply(self, choices: list[ChatChoice], **more: Any) -> ChatCompletion:
        """An event."""
        return ChatCompletion(object="chat.completion.chunk", choices=choices, **self.head, **more)

    async def body(self) -> ChatCompletion:
        """The whole answer."""
        deltas: dict[str, list[Delta]] = {name: [] for name in self._indices}
        while self.stream.is_running:
            for delta in await self.stream.take():
                self.usage.add(delta)
                deltas[delta.id].append(delta)
        choices = [
            ChatChoice(
                index=self._indices[name],
                message=Message(ROLE, "".join(delta.text for delta in found)),
                logprobs=self._logprobs(found),
                finish_reason=found[-1].finish_reason,
            )
            for name, found in deltas.items()
        ]
        return ChatCompletion(
            object="chat.completion",
            choices=choices,
            **self.head,
            usage=self.usage.usage(),
            timings=self.usage.timings(),
        )

    def _logprobs(self, deltas: list[Delta]) -> ChatLogprobs | None:
        if not self._scores:
            return None
        scores = [delta.logprob for delta in deltas if delta.logprob is not None]
        return ChatLogprobs([self._score(score) for score in scores])

    def _score(self, score: TokenLogprob) -> TokenScore:
        top = [TopToken(*self._text(token), logprob) for token, logprob in score.top]
        return TokenScore(*self._text(score.token), score.logprob, top)

    def _text(self, token: int) -> tuple[str, list[int]]:
        piece = self._pieces[token]
        return token_text(piece), list(piece)


def completion_of(body: ChatRequest) -> CompletionRequest:
    """What is asked for, as of the continuation of a prompt. Raises RequestError."""
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs.", param="top_logprobs")
    most = body.max_completion_tokens
    return CompletionRequest(
        **{name: getattr(body, name) for name in SamplingFields.__struct_fields__},
        max_tokens=body.max_tokens if most is None else most,
        n_predict=-1,  # without a bound: until the model or the context ends
        n=body.n,
        stop=body.stop,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        stream=body.stream,
    )


def chat_routes(worker: Worker) -> list[Any]:
    """The routes, bound to their worker."""

    @functools.cache
    def template() -> ChatTemplate:
        return template_of(worker)

    def requests(body: ChatRequest) -> tuple[Prompt, list[Request]]:
        prompt = prompt_of(render(body, template(), worker), worker)
        return prompt, requests_of(completion_of(body), [prompt], worker)

    @post("/v1/chat/completions", status_code=200, summary="Answer in a conversation (OpenAI)")
    async def chat(request: HttpRequest[Any, Any, Any]) -> ASGIApp:
        body = await read_json(request, ChatRequest)
        try:
            prompt, made = await asyncio.to_thread(requests, body)
            return ChatExchange(worker, body, prompt, made)
        except RequestError as error:
            if error.param == "prompt":  # the client knows it as
                error.param = "messages"
            raise

    @post("/apply-template", status_code=200, summary="Messages to the prompt's text")
    async def apply_template(request: HttpRequest[Any, Any, Any]) -> Response[bytes]:
        body = await read_json(request, ChatRequest)
        text = await asyncio.to_thread(lambda: render(body, template(), worker))
        return json_response(TemplateReply(text))

    return [chat, apply_template]
