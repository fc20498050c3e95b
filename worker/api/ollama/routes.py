"""POST /api/chat and /api/generate, and the whole of Ollama's API."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from litestar import Response, delete, get, post
from litestar.types import ASGIApp

from worker.api.answer.errors import json_response
from worker.api.answer.shapes import OllamaErrorReply
from worker.api.answer.vectors import VectorExchange
from worker.api.described import (
    JSON,
    LINES,
    Api,
    Described,
)
from worker.api.intake.body import HttpRequest
from worker.api.intake.chat.asking import ask
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.api.intake.origins import Asker
from worker.api.intake.preparing import Preparing
from worker.api.intake.texts import (
    check_vectors,
    check_width,
)
from worker.api.ollama.chat_input import (
    chat_input_of,
    check_asked,
    check_generate,
    continuation_of,
    question_of,
)
from worker.api.ollama.embedding import (
    OllamaEmbeddingsReply,
    OllamaEmbeddingsRequest,
    OllamaEmbedReply,
    OllamaEmbedRequest,
    embed_request,
    pooled_vector,
)
from worker.api.ollama.exchange import GenerateExchange, OllamaChatExchange
from worker.api.ollama.models import (
    API_VERSION,
    NEVER,
    OllamaVersion,
    ShownModel,
    TaggedModels,
    shown_model,
    tagged_model,
)
from worker.api.ollama.schemas import (
    AnswerLine,
    ChatLine,
    GenerateLine,
    GenerateRequest,
    OllamaAnswer,
    OllamaChatRequest,
    now,
)
from worker.budget import Budget
from worker.chat.format import ChatFormat
from worker.engine.embedding import normalise
from worker.errors import NotSupportedError, RequestError
from worker.lifecycle.loaded import Loaded


@post("/api/embed", status_code=200, summary="Embeddings (Ollama)")
async def ollama_embed(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """One for each text."""
    begun = time.perf_counter_ns()
    body = await preparing.body(request, OllamaEmbedRequest)
    check_vectors(facts)
    width = check_width(body.dimensions, facts)

    def reply(vectors: Sequence[np.ndarray], count: int) -> OllamaEmbedReply:
        return OllamaEmbedReply(
            model=facts.model_id,
            embeddings=[normalise(pooled_vector(vector), 2, width).tolist() for vector in vectors],
            total_duration=time.perf_counter_ns() - begun,
            prompt_eval_count=count,
        )

    given, cuts = body.input, body.truncate is not False
    if not given:  # clients ask nothing to have the model loaded, and here it is
        return cast("ASGIApp", json_response(reply((), 0)))
    wanted = await preparing.texts(
        request, body, facts, lambda budget: embed_request(given, "input", facts, budget, cuts=cuts)
    )
    count = len(wanted.prompt.tokens)
    return VectorExchange(wanted, preparing, request.url.path, lambda made: reply(made, count))


@post("/api/embeddings", status_code=200, summary="The vector of a text (Ollama)")
async def ollama_embeddings(
    request: HttpRequest, facts: ModelFacts, preparing: Preparing
) -> ASGIApp:
    """A text that is too long is cut."""
    body = await preparing.body(request, OllamaEmbeddingsRequest)
    check_vectors(facts)
    text = body.prompt
    if not text:
        return cast("ASGIApp", json_response(OllamaEmbeddingsReply([])))
    wanted = await preparing.texts(
        request, body, facts, lambda budget: embed_request(text, "prompt", facts, budget, cuts=True)
    )

    def reply(vectors: Sequence[np.ndarray]) -> OllamaEmbeddingsReply:
        return OllamaEmbeddingsReply(pooled_vector(vectors[0]).tolist())

    return VectorExchange(wanted, preparing, request.url.path, reply)


@get("/api/tags", summary="The model that runs here (Ollama)")
async def tags(facts: ModelFacts) -> Response[bytes]:
    """A list of one."""
    return json_response(TaggedModels([tagged_model(facts)]))


@get("/api/ps", summary="The model that is loaded (Ollama)")
async def ps(loaded: Loaded, facts: ModelFacts) -> Response[bytes]:
    """The same one."""
    running = tagged_model(
        facts,
        expires_at=NEVER,
        size_vram=loaded.vram_bytes,
        context_length=facts.max_length,
    )
    return json_response(TaggedModels([running]))


# Nothing in the body is needed: there is one model.
@post("/api/show", status_code=200, summary="Details of the model (Ollama)")
async def show(facts: ModelFacts) -> Response[bytes]:
    """Its template, metadata and what it can do."""
    return json_response(shown_model(facts))


@get("/api/version", summary="The version of Ollama's API (Ollama)")
async def ollama_version() -> Response[bytes]:
    """Of the API, not of this worker."""
    return json_response(OllamaVersion(API_VERSION))


@post(["/api/pull", "/api/push", "/api/create", "/api/copy"], summary="Not here (Ollama)")
async def store_models() -> Response[bytes]:
    """There is no store."""
    raise NotSupportedError(
        "This worker serves one file and keeps no store of models.",
        hint="Get files with `worker pull`, and start a worker for each.",
    )


@delete("/api/delete", status_code=200, summary="Not here (Ollama)")
async def delete_model() -> Response[bytes]:
    """There is no store."""
    raise NotSupportedError("This worker serves one file and deletes none.")


# Clients ask nothing to have the model loaded, and here it is.
_LOADED: dict[str, Any] = {"done": True, "done_reason": "load"}


@post("/api/chat", status_code=200, summary="Answer in a conversation (Ollama)")
async def ollama_chat(
    request: HttpRequest, facts: ModelFacts, chat: ChatFormat, preparing: Preparing
) -> ASGIApp:
    """Its lines, or one with all of it."""
    body = await preparing.body(request, OllamaChatRequest)
    if not body.messages:
        await preparing.aside(request, body, lambda budget: check_asked(body, facts, budget))
        message = OllamaAnswer(content="")
        return _reply(ChatLine(model=facts.model_id, created_at=now(), message=message, **_LOADED))
    generation, stream = await preparing.run(
        request, body, facts, lambda budget: ask(chat_input_of(body, facts, budget), chat, facts)
    )
    return OllamaChatExchange(generation, stream, facts, streaming=body.stream is not False)


@post("/api/generate", status_code=200, summary="Answer or continue a prompt (Ollama)")
async def generate(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """Its lines, or one with all of it."""
    body = await preparing.body(request, GenerateRequest)
    check_generate(body)
    if not (body.prompt or body.suffix or body.images):
        await preparing.aside(request, body, lambda budget: check_asked(body, facts, budget))
        return _reply(GenerateLine(model=facts.model_id, created_at=now(), response="", **_LOADED))
    is_plain = body.raw or body.suffix
    chat = None if is_plain else await _chat_format(request, facts, preparing)
    generation, stream = await preparing.run(
        request, body, facts, lambda budget: _generation_of(body, chat, facts, budget)
    )
    return GenerateExchange(generation, stream, facts, streaming=body.stream is not False)


def _generation_of(
    body: GenerateRequest, chat: ChatFormat | None, facts: ModelFacts, budget: Budget
) -> Generation:
    """By the model's template, or the text alone where there is none or it is not wanted."""
    if chat is None:
        return continuation_of(body, facts, budget)
    return ask(question_of(body, facts, budget), chat, facts)


async def _chat_format(
    request: HttpRequest, facts: ModelFacts, preparing: Preparing
) -> ChatFormat | None:
    """The one that the application keeps; None where the model's file has no template."""
    provide: Any = request.app.dependencies
    try:
        return await provide["chat"](facts=facts, preparing=preparing)
    except RequestError:
        return None


def _reply(line: AnswerLine) -> ASGIApp:
    # Litestar takes a Response where a handler may return an application.
    return cast("ASGIApp", json_response(line))


_SUM: dict[str, Any] = {"messages": [{"role": "user", "content": "What is 3 plus 4?"}]}
_SHORT: dict[str, Any] = {"options": {"temperature": 0, "num_predict": 12}}
_LINES = "A line of JSON for each part; with `stream` false one reply with all of it."

API = Api(
    name="Ollama",
    text='Ollama\'s API, for clients that know no other. An error is `{"error": "..."}`.',
    routes=(
        Described(
            handler=ollama_chat,
            asker=Asker.NAMED,
            takes=OllamaChatRequest,
            gives={JSON: ChatLine, LINES: (ChatLine, OllamaErrorReply)},
            notes=_LINES,
            examples={
                "question": {**_SUM, **_SHORT},
                "at once": {**_SUM, **_SHORT, "stream": False},
                "nothing": {},
            },
        ),
        Described(
            handler=generate,
            asker=Asker.NAMED,
            takes=GenerateRequest,
            gives={JSON: GenerateLine, LINES: (GenerateLine, OllamaErrorReply)},
            notes=_LINES,
            examples={
                "question": {"prompt": "What is 3 plus 4?", **_SHORT},
                "text": {"prompt": "Once upon a time", "raw": True, "stream": False, **_SHORT},
                "nothing": {},
            },
        ),
        Described(handler=tags, gives={JSON: TaggedModels}),
        Described(handler=ps, gives={JSON: TaggedModels}),
        Described(
            handler=show,
            asker=Asker.NAMED,
            gives={JSON: ShownModel},
            notes="The body is not looked at.",
        ),
        Described(handler=ollama_version, gives={JSON: OllamaVersion}),
        Described(handler=store_models, asker=Asker.NAMED, gives={}),
        Described(handler=delete_model, asker=Asker.NAMED, gives={}),
        Described(
            handler=ollama_embed,
            asker=Asker.NAMED,
            takes=OllamaEmbedRequest,
            gives={JSON: OllamaEmbedReply},
            examples={
                "two texts": {"input": ["Once it rains.", "The sky is clear."], "truncate": False},
                "nothing": {},
            },
        ),
        Described(
            handler=ollama_embeddings,
            asker=Asker.NAMED,
            takes=OllamaEmbeddingsRequest,
            gives={JSON: OllamaEmbeddingsReply},
            examples={"text": {"prompt": "Once it rains."}, "nothing": {}},
        ),
    ),
)
