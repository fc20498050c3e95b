"""POST /v1/responses: an answer in items, with nothing stored."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Request as HttpRequest
from litestar import post
from litestar.types import ASGIApp

from worker.chat.format import ChatFormat
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.service.body import read_json
from worker.service.generation import run
from worker.service.responses.exchange import ResponseExchange
from worker.service.responses.schemas import ResponseRequest
from worker.service.responses.talk import talk_of
from worker.service.talk.asked import Asked, ask
from worker.settings import Settings


def _asked(body: ResponseRequest, chat: ChatFormat, settings: Settings, loaded: Loaded) -> Asked:
    return ask(talk_of(body, settings, loaded), chat, loaded)


@post("/v1/responses", status_code=200, summary="Answer in items (OpenAI Responses)")
async def responses(
    request: HttpRequest[Any, Any, Any], worker: Worker, loaded: Loaded, chat: ChatFormat
) -> ASGIApp:
    """The whole response at once, or its events."""
    body = await read_json(request, ResponseRequest)
    asked = await asyncio.to_thread(_asked, body, chat, worker.settings, loaded)
    return ResponseExchange(run(asked.generation, loaded), asked, body, loaded)
