"""OpenAI's routes, with what is said of each."""

from __future__ import annotations

from typing import Any

from litestar import Response, get, post
from litestar.types import ASGIApp

from worker.api.answer.errors import json_response
from worker.api.answer.usage import InputTokens
from worker.api.described import (
    EVENTS,
    JSON,
    Api,
    Described,
)
from worker.api.intake.adapters import MODEL_ID, adapter_at
from worker.api.intake.body import HttpRequest, read_json
from worker.api.intake.chat.asking import ask
from worker.api.intake.chat.chat_request import ChatRequest, chat_input_of
from worker.api.intake.facts import ModelFacts
from worker.api.intake.origins import Asker
from worker.api.intake.preparing import Preparing
from worker.api.openai.chat import ChatExchange
from worker.api.openai.completions import CompletionExchange, generation_of
from worker.api.openai.models import ListedDetails, ListedModel, ModelEntry, ModelList, model_entry
from worker.api.openai.schemas import (
    ChatCompletion,
    Completion,
    CompletionRequest,
)
from worker.chat.format import ChatFormat
from worker.http.replies import ErrorReply


@post("/v1/chat/completions", status_code=200, summary="Answer in a conversation (OpenAI)")
async def chat_completions(
    request: HttpRequest, facts: ModelFacts, chat: ChatFormat, preparing: Preparing
) -> ASGIApp:
    """The whole answer at once, or its events."""
    body = await preparing.body(request, ChatRequest)
    generation, stream = await preparing.run(
        request, body, facts, lambda budget: ask(chat_input_of(body, facts, budget), chat, facts)
    )
    return ChatExchange(generation, stream, body, facts)


@post(
    "/v1/chat/completions/input_tokens", status_code=200, summary="Tokens of a prompt (OpenAI chat)"
)
async def chat_input_tokens(
    request: HttpRequest, facts: ModelFacts, chat: ChatFormat, preparing: Preparing
) -> Response[bytes]:
    """As the same body has them as a prompt, also where the context does not hold them."""
    body = await read_json(request, ChatRequest)
    generation = await preparing.aside(
        request,
        body,
        lambda budget: ask(chat_input_of(body, facts, budget), chat, facts, must_fit=False),
    )
    return json_response(InputTokens(generation.num_prompt_tokens))


@post("/v1/completions", status_code=200, summary="Continue a text (OpenAI completions)")
async def completions(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """The whole text at once, or its events."""
    body = await preparing.body(request, CompletionRequest)
    generation, stream = await preparing.run(
        request, body, facts, lambda budget: generation_of(body, facts, budget)
    )
    return CompletionExchange(generation, stream, body, facts)


@get("/v1/models", summary="The model that runs here, and its adapters")
async def models(facts: ModelFacts) -> Response[bytes]:
    """The model first."""
    entries = [model_entry(facts, each) for each in (None, *facts.adapters.all)]
    details = ListedDetails(facts.config.architecture, facts.config.quant)
    can = ["completion"] if facts.writes else ["embedding"]
    can += ["multimodal"] if facts.perceives else []
    listed = [
        ListedModel(
            name=each.id,
            model=each.id,
            description=f"{each.meta.architecture}, {each.meta.quant}",
            capabilities=can,
            details=details,
        )
        for each in entries
    ]
    first, last = entries[0].id, entries[-1].id
    return json_response(ModelList(data=entries, models=listed, first_id=first, last_id=last))


# Ids with a slash come raw or percent-encoded: both are one path parameter.
@get("/v1/models/{model_id:path}", summary="The model that runs here, by id")
async def model(model_id: str, facts: ModelFacts) -> Response[bytes]:
    """404 for any other id."""
    return json_response(model_entry(facts, adapter_at(model_id, facts.adapters)))


_SUM: dict[str, Any] = {"messages": [{"role": "user", "content": "What is 3 plus 4?"}]}
_SKY = {
    "type": "function",
    "function": {
        "name": "sky",
        "description": "The weather at a place",
        "parameters": {
            "type": "object",
            "properties": {"at": {"type": "string"}},
            "required": ["at"],
        },
    },
}
_STORY: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}


API = Api(
    name="OpenAI",
    text="Texts, chats and the model, as OpenAI's clients and llama-server's ask for them.",
    routes=(
        Described(
            handler=completions,
            asker=Asker.NAMED,
            takes=CompletionRequest,
            needs=("prompt",),
            gives={JSON: Completion, EVENTS: (Completion, ErrorReply)},
            examples={
                "text": _STORY,
                "stream": {**_STORY, "stream": True, "stream_options": {"include_usage": True}},
                "several": {**_STORY, "temperature": 0.8, "seed": 7, "n": 2, "best_of": 3},
                "scored": {**_STORY, "echo": True, "max_tokens": 0, "logprobs": 1},
                "token ids": {"prompt": [1, 400, 7], "max_tokens": 4},
                "structured": {
                    "prompt": "One day",
                    "max_tokens": 20,
                    "json_schema": {"enum": ["cat", "duck", "goose"]},
                },
            },
        ),
        Described(
            handler=chat_completions,
            asker=Asker.NAMED,
            takes=ChatRequest,
            needs=("messages",),
            gives={JSON: ChatCompletion, EVENTS: (ChatCompletion, ErrorReply)},
            examples={
                "question": {**_SUM, "temperature": 0},
                "stream": {**_SUM, "max_tokens": 12, "stream": True, "return_progress": True},
                "tools": {**_SUM, "max_tokens": 20, "tools": [_SKY]},
                "logprobs": {**_SUM, "max_tokens": 4, "logprobs": True, "top_logprobs": 2},
                "long conversation": {**_SUM, "max_tokens": 12, "truncation": "auto"},
            },
        ),
        Described(
            handler=chat_input_tokens,
            asker=Asker.NAMED,
            takes=ChatRequest,
            needs=("messages",),
            gives={JSON: InputTokens},
            examples={"question": _SUM},
        ),
        Described(handler=models, gives={JSON: ModelList}),
        Described(
            handler=model,
            gives={JSON: ModelEntry},
            params={"model_id": MODEL_ID},
        ),
    ),
)
