"""POST /v1/chat/completions and /apply-template: a conversation by the file's own template."""

from __future__ import annotations

from typing import Any

from litestar import Response, post
from litestar.types import ASGIApp

from worker.api.common.body import HttpRequest
from worker.api.common.chat.answer_state import AnswerState
from worker.api.common.chat.asking import ask
from worker.api.common.errors import json_response
from worker.api.common.generation import Generation, run
from worker.api.common.logprobs import SpelledIds
from worker.api.common.preparing import Preparing
from worker.api.common.usage import InputTokens
from worker.api.openai.chat_answer import ChatAnswer
from worker.api.openai.chat_input import chat_input_of
from worker.api.openai.chat_schemas import ChatChoice, ChatCompletion, ChatRequest, TemplateReply
from worker.api.openai.exchange import OpenAIExchange
from worker.chat.format import ChatFormat
from worker.engine.stream import Stream
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.settings import Settings


class ChatExchange(OpenAIExchange[ChatChoice]):
    """Answers to one conversation."""

    def __init__(
        self, generation: Generation, stream: Stream, body: ChatRequest, field: str, loaded: Loaded
    ) -> None:
        """field: of the thoughts: reasoning_content or reasoning"""
        pieces = SpelledIds() if body.return_tokens_as_token_ids else loaded.backend.pieces
        answers = [
            ChatAnswer(
                index,
                AnswerState(generation.reader()),
                pieces,
                scores=generation.params.logprobs is not None,
                field=field,
            )
            for index in range(len(stream.ids))
        ]
        super().__init__(
            generation,
            stream,
            answers,
            prefix="chatcmpl-",
            streaming=bool(body.stream),
            options=body.stream_options,
            returns_ids=bool(body.return_token_ids),
            times_all=bool(body.timings_per_token),
        )
        if body.return_token_ids:
            self._notes["prompt_token_ids"] = generation.prompts[0].tokens
        if body.verbose or (body.verbose is None and loaded.settings.verbose):
            self._notes["verbose"] = TemplateReply(generation.prompts[0].text)

    def event(self, choices: list[ChatChoice], **more: Any) -> ChatCompletion:
        return ChatCompletion(object="chat.completion.chunk", choices=choices, **self.head, **more)

    def reply(self, choices: list[ChatChoice], **more: Any) -> ChatCompletion:
        return ChatCompletion(object="chat.completion", choices=choices, **self.head, **more)


def _asked(
    body: ChatRequest, chat: ChatFormat, settings: Settings, loaded: Loaded,
    *, must_fit: bool = True,
) -> Generation:  # fmt: skip
    return ask(chat_input_of(body, settings, loaded), chat, loaded, must_fit=must_fit)


@post("/v1/chat/completions", status_code=200, summary="Answer in a conversation (OpenAI)")
async def chat_completions(
    request: HttpRequest, worker: Worker, loaded: Loaded, chat: ChatFormat, preparing: Preparing
) -> ASGIApp:
    """The whole answer at once, or its events."""
    body = await preparing.body(request, ChatRequest, loaded)
    settings = worker.settings
    made = await preparing.make(request, body, loaded, _asked, body, chat, settings, loaded)
    return ChatExchange(made, run(made, loaded), body, settings.reasoning_field, loaded)


@post("/apply-template", status_code=200, summary="Messages to the prompt's text")
async def apply_template(
    request: HttpRequest, worker: Worker, loaded: Loaded, chat: ChatFormat, preparing: Preparing
) -> Response[bytes]:
    """What the model would read, also where its context does not hold it."""
    generation = await preparing.look(request, ChatRequest, _asked, chat, worker.settings, loaded)
    return json_response(TemplateReply(generation.prompts[0].text))


@post(
    "/v1/chat/completions/input_tokens", status_code=200, summary="Tokens of a prompt (OpenAI chat)"
)
async def chat_input_tokens(
    request: HttpRequest, worker: Worker, loaded: Loaded, chat: ChatFormat, preparing: Preparing
) -> Response[bytes]:
    """As the same body has them as a prompt, also where the context does not hold them."""
    generation = await preparing.look(request, ChatRequest, _asked, chat, worker.settings, loaded)
    return json_response(InputTokens(generation.num_prompt_tokens))
