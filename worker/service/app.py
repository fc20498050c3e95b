"""The application: all routes, and what they are given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.di import Provide

from worker.account import Account
from worker.api.answer.errors import on_error
from worker.api.answer.kept_stream import KeptStreams
from worker.api.anthropic.routes import API as ANTHROPIC
from worker.api.batches.routes import API as BATCHES
from worker.api.batches.routes import BatchDesk
from worker.api.batches.runner import BatchLimits, BatchRunner
from worker.api.decisions.asking import Asking, asking_of
from worker.api.decisions.routes import API as DECISIONS
from worker.api.described import Api
from worker.api.embeddings.routes import API as VECTORS
from worker.api.info.readings import Window
from worker.api.info.routes import API as INFO
from worker.api.intake.body import Bodies
from worker.api.intake.chat.templates import format_of
from worker.api.intake.facts import ModelFacts
from worker.api.intake.origins import guard_of
from worker.api.intake.preparing import Preparing
from worker.api.jobs.registry import Jobs
from worker.api.jobs.routes import API as JOBS
from worker.api.llama_server.routes import API as LLAMA_SERVER
from worker.api.ollama.routes import API as OLLAMA
from worker.api.openai.routes import API as OPENAI
from worker.api.requests import API as REQUESTS
from worker.api.requests import RequestView
from worker.api.responses.recorder import Recorder
from worker.api.responses.routes import API as RESPONSES
from worker.api.responses.store import ResponseStore
from worker.api.streams import API as STREAMS
from worker.api.transcriptions.routes import API as AUDIO
from worker.chat.format import ChatFormat
from worker.database.batches import StoredBatches
from worker.database.database import Database
from worker.database.files import StoredFiles
from worker.database.responses import SavedResponses
from worker.http.connections import ENTER
from worker.keys import accounts_of
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.requests.journal import Journal
from worker.service.facts import facts_of
from worker.service.inner import InnerClient
from worker.settings import Settings

# All routes, in the order in which they are described.
APIS = (
    OPENAI, AUDIO, RESPONSES, ANTHROPIC, OLLAMA, LLAMA_SERVER, VECTORS, DECISIONS, BATCHES, JOBS,
    STREAMS, REQUESTS, INFO,
)  # fmt: skip


def create_app(worker: Worker, journal: Journal, database: Database | None = None) -> Any:
    """The ASGI application behind the gate.

    A handler names what it needs:

        worker    the process's one worker, in whatever state
        loaded    what the worker has loaded; 503 while that is not there
        facts     what requests are checked against and made ready with
        chat      the model file's chat format, made once; 400 where it has none
        asking    how decisions ask the model, made once
        stored    responses that clients may refer to
        streams   those that clients may come back to
        jobs      the jobs that were accepted and are not forgotten
        journal   the requests that generate, and the last ones that ended
        lookout   how they are shown
        window    what was told at the last scrape
        preparing reads bodies and makes requests ready, in threads
        desk      files and batches; None without --state-dir
        recorder  background responses that survive this process; None without --state-dir
        description  OpenAPI's document, made once
    """
    prepares = Preparing(lambda: worker.loaded.engine)
    worker.is_quiet = lambda: prepares.is_idle
    settings = worker.settings
    streams = KeptStreams(settings.resume_seconds, settings.resume_memory << 20)
    bodies = Bodies(
        settings.receive_timeout,
        settings.max_body << 20,
        settings.max_media_body << 20,
        lambda: worker.loaded.media is not None,
        is_relayed=settings.relayed,
        has_users=settings.fair_by == "user",
    )

    # Those that a request to generate needs follow each other, also where one does not use the one
    # before. Two at once are two tasks in a group: 45 us, and 12 ms of imports at the first time.
    async def live_model(worker: Worker) -> Loaded:
        return worker.loaded

    async def facts() -> ModelFacts:
        loaded = worker.loaded
        return facts_of(loaded, loaded.native)

    async def preparing(facts: ModelFacts) -> Preparing:  # noqa: ARG001
        return prepares

    def chat_format(facts: ModelFacts, preparing: Preparing) -> ChatFormat:  # noqa: ARG001
        return format_of(facts)

    def asking(facts: ModelFacts, preparing: Preparing) -> Asking:  # noqa: ARG001
        return asking_of(facts)

    desk = None if database is None else _desk_of(database, worker, journal)
    stored = ResponseStore()
    recorder = None if database is None else _recorder_of(database, worker, stored)

    async def responses() -> ResponseStore:
        if recorder is not None:
            await recorder.wait()
        return stored

    app = Litestar(
        [_router(api, worker.settings) for api in APIS],
        dependencies={
            "worker": _always(worker),
            "loaded": Provide(live_model),
            "facts": Provide(facts),
            "chat": Provide(chat_format, use_cache=True, sync_to_thread=True),
            "asking": Provide(asking, use_cache=True, sync_to_thread=True),
            "stored": Provide(responses),
            "streams": _always(streams),
            "jobs": _always(Jobs(timeout=worker.settings.inference_timeout)),
            "journal": _always(journal),
            "lookout": _always(RequestView(worker, journal)),
            "window": _always(Window()),
            "preparing": Provide(preparing),
            "desk": _always(desk),
            "recorder": _always(recorder),
            "description": Provide(_description, use_cache=True, sync_to_thread=True),
        },
        exception_handlers={Exception: on_error},
        request_max_body_size=bodies.largest,
        state=State({"preparing": prepares, "bodies": bodies, "streams": streams, "desk": desk}),
        openapi_config=None,
        logging_config=None,
    )
    if desk is not None:
        desk.runner.client = InnerClient(app, worker, journal)
    if recorder is not None:
        recorder.asker, journal.on_ready = InnerClient(app, worker, journal), recorder.resume
    return app


def _desk_of(database: Database, worker: Worker, journal: Journal) -> BatchDesk:
    files, batches = StoredFiles(database), StoredBatches(database)
    settings = worker.settings
    limits = BatchLimits(settings.batch_lines, settings.max_body << 20, settings.keep_days)
    runner = BatchRunner(files, batches, limits, _accounts_of(settings))
    journal.outcomes.batches = runner
    return BatchDesk(files, batches, runner)


def _recorder_of(database: Database, worker: Worker, stored: ResponseStore) -> Recorder:
    settings = worker.settings
    saved = SavedResponses(database)
    return Recorder(saved, stored, _accounts_of(settings), settings.keep_days)


def _accounts_of(settings: Settings) -> Callable[[str], Account]:
    """The account of a name; an owner without one is a key's digest, or empty, see `Auth.owner`."""
    known = accounts_of(settings.api_key, settings.api_key_file).values()
    accounts = {each.name: each for each in known}
    return lambda name: accounts.get(name) or Account("" if name.startswith("/") else name)


def _router(api: Api, settings: Settings) -> Router:
    handlers = [route.handler for route in api.routes]
    askers = {route.handler.fn: route.asker for route in api.routes if route.asker is not None}
    waking = {route.handler.fn for route in api.routes if route.needs_model}
    told = partial(on_error, reply_of=api.reply_of)

    async def enter(connection: Any, handler: Any) -> None:
        """Behind the guard: whom it refuses wakes nobody."""
        if handler.fn in waking:
            await connection.scope[ENTER]()

    return Router(
        "/",
        route_handlers=handlers,
        guards=[guard_of(askers, settings), enter],
        exception_handlers={Exception: told},
    )


def _always(thing: object) -> Provide:
    async def give() -> Any:
        return thing

    return Provide(give)


def _description(worker: Worker, loaded: Loaded) -> bytes:
    """Made when somebody asks first, by what is imported then."""
    from worker.service.openapi import document_of

    has_key = bool(worker.settings.api_keys)
    document = document_of(APIS, model_id=loaded.model_id, has_key=has_key)
    return msgspec.json.encode(document)
