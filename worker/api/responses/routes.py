"""POST /v1/responses: an answer in items, with nothing stored."""

from __future__ import annotations

from typing import Any

from litestar import Request as HttpRequest
from litestar import Response, post
from litestar.types import ASGIApp

from worker.api.common.chat.asking import ask
from worker.api.common.errors import json_response
from worker.api.common.generation import Generation, run
from worker.api.common.preparing import Preparing
from worker.api.common.usage import InputTokens
from worker.api.responses.chat_input import chat_input_of
from worker.api.responses.exchange import ResponseExchange
from worker.api.responses.schemas import ResponseRequest
from worker.chat.format import ChatFormat
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.settings import Settings


def _asked(
    body: ResponseRequest, chat: ChatFormat, settings: Settings, loaded: Loaded,
    *, must_fit: bool = True,
) -> Generation:  # fmt: skip
    return ask(chat_input_of(body, settings, loaded), chat, loaded, must_fit=must_fit)


@post("/v1/responses", status_code=200, summary="Answer in items (OpenAI Responses)")
async def responses(
    request: HttpRequest[Any, Any, Any],
    worker: Worker,
    loaded: Loaded,
    chat: ChatFormat,
    preparing: Preparing,
) -> ASGIApp:
    """The whole response at once, or its events."""
    body = await preparing.body(request, ResponseRequest, loaded)
    settings = worker.settings
    made = await preparing.make(request, body, loaded, _asked, body, chat, settings, loaded)
    return ResponseExchange(made, run(made, loaded), body, loaded)


@post("/v1/responses/input_tokens", status_code=200, summary="Tokens of a prompt (Responses)")
async def input_tokens(
    request: HttpRequest[Any, Any, Any],
    worker: Worker,
    loaded: Loaded,
    chat: ChatFormat,
    preparing: Preparing,
) -> Response[bytes]:
    """As the same body has them as a prompt, also where the context does not hold them."""
    generation = await preparing.look(
        request, ResponseRequest, _asked, chat, worker.settings, loaded
    )
    return json_response(InputTokens(generation.num_prompt_tokens))
