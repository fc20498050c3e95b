"""What first requests would wait for, done ahead of them: beside native code that loads the model,
or later, while nobody asks."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any

import msgspec

from worker.api.anthropic.schemas import MessagesRequest
from worker.api.infill.routes import InfillRequest
from worker.api.jobs.schemas import JobRequest
from worker.api.ollama.schemas import GenerateRequest, OllamaChatRequest
from worker.api.openai.chat_schemas import ChatRequest
from worker.api.openai.completion_schemas import CompletionRequest
from worker.api.responses.schemas import ResponseRequest
from worker.errors import WorkerError
from worker.lifecycle.hurry import in_a_hurry
from worker.lifecycle.state import State
from worker.lifecycle.worker import Worker

# Seconds between two looks whether a request is there. So many must find none before something is
# begun: who waited for the worker asks at once, and should not share the CPUs with this. Beside
# requests it is looked seldom: each look wakes the event loop, which takes a CPU from a step.
_LOOK_S, _LOOKS = 0.02, 5
_SELDOM_S = 0.5
# Between two stretches of memory that are moved beside requests.
_PATIENCE_S = 0.5
# What a body looks like msgspec finds out at its first use: 1 to 3 ms of CPU time each.
_FIRST_BODIES = (CompletionRequest, ChatRequest)
_BODIES = (ResponseRequest, MessagesRequest)
# What Litestar gives to a handler it checks by structs too: 1 ms of the first request.
_FIRST_PATHS = ("/v1/completions", "/v1/chat/completions")
_MODULES = (
    "worker.chat.jinja.compiled",  # 25 ms of the first chat
    "worker.api.info.collector",  # 15 ms of the first /metrics
    "anyio._backends._asyncio",  # 12 ms of the first job: Litestar finds two things at once for it
)
_RARE_BODIES = (OllamaChatRequest, GenerateRequest, InfillRequest, JobRequest)


def make_first_decoders(app: Any) -> None:
    """Of what is asked most. For any thread, before the routes can be reached: see `_make_decoder`.

    A small model is there before the routes are, and who waited for it asks at once.
    """
    shapes: list[Any] = [*_FIRST_BODIES]
    for route in app.routes:
        if route.path in _FIRST_PATHS:
            for handler in route.route_handlers:
                given = handler.resolve_dependencies()
                names = handler.signature_model.__struct_fields__
                needed = (given[name].signature_model for name in names if name in given)
                shapes += [handler.signature_model, *needed]
    for shape in shapes:
        msgspec.json.Decoder(shape)


async def get_ahead(app: Any, worker: Worker) -> None:
    """Returns when all is done, or the worker is no longer one that gets or is ready.

    Nothing that a request needs is begun while one is there. What has begun goes on beside one, for
    25 ms at most, or for as long as the model's chat template takes to compile.
    """
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_make_ready(app, worker))
        tasks.create_task(_use_large_pages(worker))


async def _make_ready(app: Any, worker: Worker) -> None:
    idle = _Idle(worker)
    parts: list[Callable[[], Awaitable[object]]] = [
        *(partial(_make_decoder, body) for body in _BODIES),
        *(partial(_import, module) for module in _MODULES),
        *(partial(_make_decoder, body) for body in _RARE_BODIES),
    ]
    for part in parts:
        await (idle.do(part) if worker.has_loaded.is_set() else part())
    chat = app.dependencies["chat"]
    with contextlib.suppress(WorkerError):  # a file without a template; who asks is told
        await idle.do(lambda: chat(loaded=worker.loaded, preparing=app.state.preparing))


async def _use_large_pages(worker: Worker) -> None:
    """Slowly beside requests: a worker that is never idle has them after a while too."""
    idle = _Idle(worker)
    if await idle.comes(_PATIENCE_S):
        await worker.loaded.use_large_pages(partial(idle.comes, _PATIENCE_S))


async def _import(module: str) -> None:
    await asyncio.to_thread(import_module, module)


async def _make_decoder(body: type[msgspec.Struct]) -> None:
    """In the event loop, which decodes the bodies: msgspec lets other threads see what it has
    found out by half, and a request that is decoded with that ends the process (SIGSEGV)."""
    msgspec.json.Decoder(body)
    await asyncio.sleep(0)


class _Idle:
    """Does things while nobody asks; after a request it is patient again."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._looks = 0

    async def do(self, part: Callable[[], Awaitable[object]]) -> None:
        """Begin when it is quiet, or never where the worker leaves."""
        if await self.comes():
            with in_a_hurry():
                await part()

    async def comes(self, patience_s: float = math.inf) -> bool:
        """True when it is quiet, or that long beside requests; False where the worker leaves."""
        worker, pause_s, is_quiet = self._worker, _LOOK_S, False
        ends = time.monotonic() + patience_s
        while not is_quiet:
            await asyncio.sleep(pause_s)
            if worker.state not in (State.LOADING, State.READY):
                return False
            is_asked = worker.state is State.READY and worker.loaded.engine.num_streams > 0
            is_busy = is_asked or worker.state is State.LOADING
            self._looks = 0 if is_busy else self._looks + 1
            is_quiet = self._looks >= _LOOKS or (is_asked and time.monotonic() >= ends)
            pause_s = _SELDOM_S if is_asked else _LOOK_S
        return True
