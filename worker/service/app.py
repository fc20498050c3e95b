"""The application: all routes, and what they are given."""

from __future__ import annotations

from typing import Any

from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide

from worker.api.anthropic.routes import count_tokens, messages
from worker.api.common.body import Bodies
from worker.api.common.chat.templates import format_of
from worker.api.common.errors import on_error
from worker.api.common.preparing import Preparing
from worker.api.embeddings.ranking import rerank, score
from worker.api.embeddings.routes import embeddings, llama_embeddings, token_vectors
from worker.api.info.about import info, model_ready, version
from worker.api.info.health import health
from worker.api.info.lora import load_adapter_file, lora_adapters, scale_adapters, unload_adapter
from worker.api.info.metrics import metrics
from worker.api.info.progress import progress
from worker.api.info.props import props, slots
from worker.api.info.readings import Window
from worker.api.info.shutdown import shutdown
from worker.api.info.sleep import is_sleeping, sleep, wake_up
from worker.api.jobs.registry import Jobs
from worker.api.jobs.routes import job_routes
from worker.api.llama_server.routes import completion, infill
from worker.api.llama_server.slots import slot_action
from worker.api.ollama.embedding import ollama_embed, ollama_embeddings
from worker.api.ollama.models import delete_model, ollama_version, ps, show, store_models, tags
from worker.api.ollama.routes import generate, ollama_chat
from worker.api.openai.chat import apply_template, chat_completions, chat_input_tokens
from worker.api.openai.completions import completions
from worker.api.openai.models import model, models
from worker.api.requests.request_view import RequestView
from worker.api.requests.routes import cancel_request, live_requests
from worker.api.responses.routes import (
    cancel_response,
    conversations,
    delete_response,
    input_tokens,
    listed_input,
    responses,
    stored_response,
)
from worker.api.responses.store import ResponseStore
from worker.api.tokens.routes import detokenize_tokens, tokenize_text, tokenizer_info
from worker.chat.format import ChatFormat
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.requests.journal import Journal
from worker.service.description.routes import Description, docs, openapi_json

ROUTES: list[Any] = [
    *(completions, chat_completions, chat_input_tokens, apply_template, models, model),
    *(embeddings, llama_embeddings, token_vectors, rerank, score),
    *(responses, input_tokens, stored_response, listed_input, delete_response, cancel_response),
    conversations,
    *(infill, completion, slot_action),
    *(messages, count_tokens),
    *(ollama_chat, generate, tags, show, ps, ollama_version, store_models, delete_model),
    *(ollama_embed, ollama_embeddings),
    job_routes,
    *(tokenize_text, detokenize_tokens, tokenizer_info),
    *(health, metrics, progress, shutdown),
    *(sleep, wake_up, is_sleeping),
    *(info, version, model_ready, props, slots, lora_adapters, scale_adapters),
    *(load_adapter_file, unload_adapter),
    *(live_requests, cancel_request),
    *(openapi_json, docs),
]


def create_app(worker: Worker, journal: Journal) -> Any:
    """The ASGI application behind the gate.

    A handler names what it needs:

        worker    the process's one worker, in whatever state
        loaded    what the worker has loaded; 503 while that is not there
        chat      the model file's chat format, made once; 400 where it has none
        stored    responses that clients may refer to
        jobs      the jobs that were accepted and are not forgotten
        journal   the requests that generate, and the last ones that ended
        lookout   how they are shown
        window    what was told at the last scrape
        preparing reads bodies and makes requests ready, in threads
        description  what the API is, made once
    """
    prepares = Preparing()
    worker.is_quiet = lambda: prepares.is_idle
    largest = worker.settings.max_body << 20
    bodies = Bodies(worker.settings.receive_timeout, largest)

    # Those that a request to generate needs follow each other, also where one does not use the one
    # before. Two at once are two tasks in a group: 45 us, and 12 ms of imports at the first time.
    async def loaded(worker: Worker) -> Loaded:
        return worker.loaded

    async def preparing(loaded: Loaded) -> Preparing:  # noqa: ARG001
        return prepares

    def chat_format(loaded: Loaded, preparing: Preparing) -> ChatFormat:  # noqa: ARG001
        return format_of(loaded, worker.settings)

    return Litestar(
        ROUTES,
        dependencies={
            "worker": _always(worker),
            "loaded": Provide(loaded),
            "chat": Provide(chat_format, use_cache=True, sync_to_thread=True),
            "stored": _always(ResponseStore()),
            "jobs": _always(Jobs(timeout=worker.settings.inference_timeout)),
            "journal": _always(journal),
            "lookout": _always(RequestView(worker, journal)),
            "window": _always(Window()),
            "preparing": Provide(preparing),
            "description": Provide(_description, use_cache=True, sync_to_thread=True),
        },
        exception_handlers={Exception: on_error},
        request_max_body_size=largest,
        state=State({"preparing": prepares, "bodies": bodies}),
        openapi_config=None,
        logging_config=None,
    )


def close(app: Any) -> bool:
    """Begin no work that waits for a thread. Returns whether none works for who has left."""
    app.state.preparing.close()
    return app.state.preparing.is_idle


def _always(thing: object) -> Provide:
    async def given() -> Any:
        return thing

    return Provide(given)


def _description(worker: Worker, loaded: Loaded) -> Description:
    """Made when somebody asks first, by what is imported then."""
    from worker.service.description.making import description_of

    return description_of(worker, loaded)
