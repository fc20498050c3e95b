"""POST /v1/audio/transcriptions and /v1/audio/translations."""

from __future__ import annotations

from functools import partial

from litestar import post
from litestar.types import ASGIApp

from worker.api.described import EVENTS, JSON, TEXT, Api, Described
from worker.api.intake.body import HttpRequest
from worker.api.intake.facts import ModelFacts
from worker.api.intake.origins import Asker
from worker.api.intake.preparing import Preparing
from worker.api.transcriptions.exchange import TranscriptionExchange
from worker.api.transcriptions.form import generation_of, read_form
from worker.api.transcriptions.schemas import (
    TranscriptDelta,
    TranscriptDone,
    Transcription,
    TranscriptionRequest,
)
from worker.chat.format import ChatFormat
from worker.http.replies import ErrorReply


@post("/v1/audio/transcriptions", status_code=200, summary="Words of audio (OpenAI)")
async def transcriptions(
    request: HttpRequest, facts: ModelFacts, chat: ChatFormat, preparing: Preparing
) -> ASGIApp:
    """In the language that is spoken."""
    return await _write(request, facts, chat, preparing, translates=False)


@post("/v1/audio/translations", status_code=200, summary="Words of audio in English (OpenAI)")
async def translations(
    request: HttpRequest, facts: ModelFacts, chat: ChatFormat, preparing: Preparing
) -> ASGIApp:
    """As well as the model can."""
    return await _write(request, facts, chat, preparing, translates=True)


async def _write(
    request: HttpRequest,
    facts: ModelFacts,
    chat: ChatFormat,
    preparing: Preparing,
    *,
    translates: bool,
) -> ASGIApp:
    read = partial(read_form, content_type=request.headers.get("content-type", ""))
    body = await preparing.body_by(request, TranscriptionRequest, read)
    generation, stream = await preparing.run(
        request,
        body,
        facts,
        lambda budget: generation_of(body, chat, facts, budget, translates=translates),
    )
    return TranscriptionExchange(generation, stream, body)


API = Api(
    name="Audio",
    text="Words of audio, by a model that hears.",
    routes=tuple(
        Described(
            handler=handler,
            asker=Asker.NAMED,
            takes=TranscriptionRequest,
            is_form=True,
            needs=("file",),
            gives={
                JSON: Transcription,
                TEXT: str,
                EVENTS: (TranscriptDelta, TranscriptDone, ErrorReply),
            },
            notes="Formats with times of words (verbose_json, srt, vtt) are refused.",
        )
        for handler in (transcriptions, translations)
    ),
)
