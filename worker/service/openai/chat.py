"""POST /v1/chat/completions and /apply-template: a conversation by the file's own template."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Request as HttpRequest
from litestar import Response, post
from litestar.types import ASGIApp

from worker.chat.events import ChatEvent, Content, Thought
from worker.chat.format import ChatFormat
from worker.engine.output import TokenLogprob
from worker.engine.sequence import Delta
from worker.lifecycle.loaded import Loaded
from worker.service.body import read_json
from worker.service.errors import json_response
from worker.service.generation import Running, run
from worker.service.openai.chat_schemas import (
    ChatChoice,
    ChatCompletion,
    ChatLogprobs,
    ChatRequest,
    Spoken,
    TemplateReply,
    TokenScore,
    TopToken,
)
from worker.service.openai.exchange import Answer, OpenAIExchange, tells
from worker.service.openai.logprobs import token_text
from worker.service.openai.talk import talk_of
from worker.service.talk.asked import Asked, ask
from worker.service.talk.said import Said

ROLE = "assistant"


class ChatAnswer(Answer[ChatChoice]):
    """The assistant's turn in one conversation; its role comes with its first token."""

    def __init__(self, index: int, said: Said, pieces: list[bytes], *, scores: bool) -> None:
        """index: in the events of a stream; scores: whether logprobs are told."""
        self._index = index
        self._said = said
        self._pieces = pieces
        self._wants_scores = scores
        self._role: str | None = ROLE
        self._scores: list[TokenScore] = []

    def take(self, delta: Delta) -> list[ChatChoice]:
        """One event for each token at least."""
        if not tells(delta):
            return []
        events: list[ChatEvent] = self._said.take(delta) or [Content("")]
        scores: list[TokenScore] = []
        if self._wants_scores and delta.logprob is not None:
            scores.append(self._score(delta.logprob))
            self._scores += scores
        choices: list[ChatChoice] = []
        for event in events:
            choices.append(
                ChatChoice(
                    index=self._index,
                    delta=_told(event, self._role),
                    logprobs=ChatLogprobs(scores) if self._wants_scores else None,
                )
            )
            self._role, scores = None, []
        choices[-1].finish_reason = self._said.finish_reason
        return choices

    def silent(self) -> ChatChoice:
        """No message."""
        return ChatChoice(index=self._index, delta=Spoken())

    def whole(self, index: int) -> ChatChoice:
        """The message."""
        said = self._said
        return ChatChoice(
            index=index,
            message=Spoken(ROLE, said.content, said.thought or None),
            logprobs=ChatLogprobs(self._scores) if self._wants_scores else None,
            finish_reason=said.finish_reason,
        )

    def _score(self, score: TokenLogprob) -> TokenScore:
        top = [TopToken(*self._text(token), logprob) for token, logprob in score.top]
        return TokenScore(*self._text(score.token), score.logprob, top)

    def _text(self, token: int) -> tuple[str, list[int]]:
        piece = self._pieces[token]
        return token_text(piece), list(piece)


def _told(event: ChatEvent, role: str | None) -> Spoken:
    match event:
        case Content(text):
            return Spoken(role, text)
        case Thought(text):
            return Spoken(role, None, text)
        case _:
            return Spoken(role)


class ChatExchange(OpenAIExchange[ChatChoice]):
    """Answers to one conversation."""

    def __init__(self, running: Running, asked: Asked, body: ChatRequest, loaded: Loaded) -> None:
        pieces, scores = loaded.backend.pieces, bool(body.logprobs)
        answers = [
            ChatAnswer(index, Said(asked.reader()), pieces, scores=scores)
            for index in range(len(running.ids))
        ]
        super().__init__(
            running,
            answers,
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


def _asked(body: ChatRequest, chat: ChatFormat, loaded: Loaded) -> Asked:
    return ask(talk_of(body, loaded), chat, loaded)


@post("/v1/chat/completions", status_code=200, summary="Answer in a conversation (OpenAI)")
async def chat_completions(
    request: HttpRequest[Any, Any, Any], loaded: Loaded, chat: ChatFormat
) -> ASGIApp:
    """The whole answer at once, or its events."""
    body = await read_json(request, ChatRequest)
    asked = await asyncio.to_thread(_asked, body, chat, loaded)
    return ChatExchange(run(asked.generation, loaded), asked, body, loaded)


@post("/apply-template", status_code=200, summary="Messages to the prompt's text")
async def apply_template(
    request: HttpRequest[Any, Any, Any], loaded: Loaded, chat: ChatFormat
) -> Response[bytes]:
    """What the model would read."""
    body = await read_json(request, ChatRequest)
    asked = await asyncio.to_thread(_asked, body, chat, loaded)
    return json_response(TemplateReply(asked.prompt))
