"""Anthropic's Messages, for the description of the API."""

from __future__ import annotations

from typing import Any

from worker.api.anthropic.replies import (
    BlockDelta,
    BlockStart,
    BlockStop,
    MessageDelta,
    MessageReply,
    MessageStart,
    MessageStop,
    Ping,
    TokenCount,
)
from worker.api.anthropic.routes import count_tokens, messages
from worker.api.anthropic.schemas import MessagesRequest
from worker.api.common.described import EVENTS, JSON, Api, Described
from worker.api.common.refusals import BODY, CHAT, FORMED, GENERATION, PROMPT, TOKENIZED
from worker.api.common.shapes import UNTHREADED, AnthropicErrorReply
from worker.errors import RequestError

_SUM: dict[str, Any] = {"messages": [{"role": "user", "content": "What is 3 plus 4?"}]}
_THREAD = RequestError("thread asks for a conversation that is stored.", code=UNTHREADED)
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
            takes=MessagesRequest,
            needs=("messages", "max_tokens"),
            gives={JSON: MessageReply, EVENTS: _EVENTS},
            refuses=(*BODY, *PROMPT, *CHAT, _THREAD, *GENERATION),
            named=True,
            notes="With `stream` events come as they are made.",
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
            takes=MessagesRequest,
            needs=("messages",),
            gives={JSON: TokenCount},
            refuses=(*BODY, *TOKENIZED, *CHAT, *FORMED, _THREAD),
            examples={"question": _SUM},
        ),
    ),
)
