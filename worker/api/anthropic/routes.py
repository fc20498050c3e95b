"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from typing import Any

from litestar import Response, post
from litestar.types import ASGIApp

from worker.api.answer.errors import json_response
from worker.api.answer.shapes import AnthropicErrorReply
from worker.api.anthropic.chat_input import chat_input_of
from worker.api.anthropic.exchange import MessageExchange
from worker.api.anthropic.schemas import (
    BlockDelta,
    BlockStart,
    BlockStop,
    MessageDelta,
    MessageReply,
    MessagesRequest,
    MessageStart,
    MessageStop,
    Ping,
    TokenCount,
)
from worker.api.described import (
    EVENTS,
    JSON,
    Api,
    Described,
)
from worker.api.intake.body import HttpRequest, read_json
from worker.api.intake.chat.asking import ask
from worker.api.intake.facts import ModelFacts
from worker.api.intake.origins import Asker
from worker.api.intake.preparing import Preparing
from worker.api.intake.thinking import ThinkingConfig
from worker.chat.format import ChatFormat
from worker.errors import RequestError


@post("/v1/messages", status_code=200, summary="Answer in a conversation (Anthropic)")
async def messages(
    request: HttpRequest, facts: ModelFacts, chat: ChatFormat, preparing: Preparing
) -> ASGIApp:
    """The whole message at once, or its events."""
    body = await preparing.body(request, MessagesRequest)
    if body.max_tokens is None and body.n_predict is None:
        raise RequestError(
            "max_tokens is missing.", param="max_tokens", hint="Send the most tokens of the answer."
        )
    generation, stream = await preparing.run(
        request, body, facts, lambda budget: ask(chat_input_of(body, facts, budget), chat, facts)
    )
    return MessageExchange(
        generation,
        stream,
        streaming=bool(body.stream),
        shows_thoughts=not isinstance(body.thinking, ThinkingConfig)
        or body.thinking.display != "omitted",
    )


@post("/v1/messages/count_tokens", status_code=200, summary="Tokens of a prompt (Anthropic)")
async def count_tokens(
    request: HttpRequest, facts: ModelFacts, chat: ChatFormat, preparing: Preparing
) -> Response[bytes]:
    """As the same body has them as a prompt, also where the context does not hold them."""
    body = await read_json(request, MessagesRequest)
    generation = await preparing.aside(
        request,
        body,
        lambda budget: ask(chat_input_of(body, facts, budget), chat, facts, must_fit=False),
    )
    return json_response(TokenCount(generation.num_prompt_tokens))


_SUM: dict[str, Any] = {"messages": [{"role": "user", "content": "What is 3 plus 4?"}]}
_EVENTS = (
    MessageStart, Ping, BlockStart, BlockDelta, BlockStop, MessageDelta, MessageStop,
    AnthropicErrorReply,
)  # fmt: skip

API = Api(
    name="Anthropic",
    text="Anthropic's Messages API, which Claude Code speaks. Errors have Anthropic's shape.",
    routes=(
        Described(
            handler=messages,
            asker=Asker.NAMED,
            takes=MessagesRequest,
            needs=("messages", "max_tokens"),
            gives={JSON: MessageReply, EVENTS: _EVENTS},
            named=True,
            examples={
                "question": {**_SUM, "max_tokens": 20, "temperature": 0},
                "stream": {**_SUM, "max_tokens": 20, "stream": True},
                "fill the cache": {**_SUM, "max_tokens": 0},
                "begun answer": {
                    "system": "You answer in one sentence.",
                    "messages": [*_SUM["messages"], {"role": "assistant", "content": "3 plus"}],
                    "max_tokens": 20,
                },
            },
        ),
        Described(
            handler=count_tokens,
            asker=Asker.NAMED,
            takes=MessagesRequest,
            needs=("messages",),
            gives={JSON: TokenCount},
            examples={"question": _SUM},
        ),
    ),
)
