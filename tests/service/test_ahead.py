"""What first requests need is made ready beside the load, or while nobody asks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from worker.api.openai.chat_schemas import ChatRequest
from worker.api.openai.completion_schemas import CompletionRequest
from worker.errors import RequestError
from worker.lifecycle.state import State
from worker.requests.journal import Journal
from worker.service import ahead, server

TURNS = 300  # of the event loop: more than the looks after which something is begun


class Chats:
    """An application that has nothing but a chat format to compile."""

    def __init__(self) -> None:
        self.compiled_for: list[object] = []
        self.dependencies = {"chat": self.compile}
        self.state = SimpleNamespace(preparing=None)

    async def compile(self, loaded: object, preparing: object) -> None:
        self.compiled_for.append(loaded)


class LoadedModel:
    """A model of three stretches of memory that can be moved."""

    def __init__(self, engine: object) -> None:
        self.engine = engine
        self.num_moved = 0

    async def use_large_pages(self, may_begin: Callable[[], Awaitable[bool]]) -> None:
        while self.num_moved < 3 and await may_begin():
            self.num_moved += 1


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, by the thread that did it; the looks follow each other at once."""
    done: list[str] = []
    monkeypatch.setattr(ahead, "_LOOK_S", 0)
    monkeypatch.setattr(ahead, "_SELDOM_S", 0)

    def note(_module: str) -> None:
        done.append(threading.current_thread().name)

    monkeypatch.setattr(ahead, "import_module", note)
    return done


def worker_that_is(state: State, num_streams: int = 0) -> Any:
    loads = threading.Event()
    if state is not State.LOADING:
        loads.set()
    engine = SimpleNamespace(num_streams=num_streams)
    loaded = LoadedModel(engine)
    return SimpleNamespace(state=state, has_loaded=loads, loaded=loaded)


async def some_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def test_beside_the_load(parts: list[str]) -> None:
    """What needs no model does not wait for it; the template does."""

    async def scenario() -> None:
        app, worker = Chats(), worker_that_is(State.LOADING)
        task = asyncio.create_task(ahead.get_ahead(app, worker))
        async with asyncio.timeout(60):
            while len(parts) < 3:
                await asyncio.sleep(0.001)
        await some_turns()
        assert not app.compiled_for
        worker.has_loaded.set()
        worker.state = State.READY
        await task
        assert app.compiled_for == [worker.loaded]

    asyncio.run(scenario())
    assert threading.main_thread().name not in parts


class Asked:
    """An engine with a request, which counts how often it is looked at."""

    def __init__(self) -> None:
        self.num_looks = 0

    @property
    def num_streams(self) -> int:
        self.num_looks += 1
        return 1


def test_looked_at_seldom_beside_a_request(
    parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look wakes the event loop, beside threads that compute."""
    monkeypatch.setattr(ahead, "_SELDOM_S", 60)

    async def scenario() -> None:
        worker = worker_that_is(State.READY)
        worker.loaded.engine = engine = Asked()
        task = asyncio.create_task(ahead.get_ahead(Chats(), worker))
        await some_turns()
        assert engine.num_looks == 2  # for what requests need, and for the large pages
        task.cancel()

    asyncio.run(scenario())
    assert not parts


def test_decoders_are_made_by_the_thread_that_decodes(
    parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that another thread decodes with half of a decoder ends the worker by SIGSEGV."""
    makers: list[str] = []

    def note(_body: object) -> None:
        makers.append(threading.current_thread().name)

    monkeypatch.setattr(msgspec.json, "Decoder", note)
    asyncio.run(ahead.get_ahead(Chats(), worker_that_is(State.READY)))
    assert len(makers) == 6
    assert set(makers) == {threading.current_thread().name}
    assert parts


def test_the_first_decoders_are_there_before_the_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """While they are made nothing can be decoded in another thread. What Litestar checks before it
    calls a handler is among them."""
    made: list[Any] = []
    settings = SimpleNamespace(otel=False, inference_timeout=1.0, receive_timeout=1.0, max_body=1)
    worker: Any = SimpleNamespace(
        at_weights=threading.Event(),
        timed=lambda _part: contextlib.nullcontext(),  # pyright: ignore[reportUnknownLambdaType]
        settings=settings,
    )
    worker.at_weights.set()
    monkeypatch.setattr(msgspec.json, "Decoder", made.append)
    gate: Any = SimpleNamespace(open=made.append)
    opening = server._open(gate, worker, Journal("demo"))  # pyright: ignore[reportPrivateUsage]
    opened = asyncio.run(opening)
    assert made[:2] == [CompletionRequest, ChatRequest]
    for handler in handlers(opened):
        assert handler.signature_model in made
        assert handler.resolve_dependencies()["loaded"].signature_model in made
        assert handler.resolve_dependencies()["preparing"].signature_model in made
    assert made[-1] is opened


def handlers(opened: Any) -> list[Any]:
    """Of the paths that are asked most."""
    paths = "/v1/completions", "/v1/chat/completions"
    routes = [route for route in opened.routes if route.path in paths]
    found = [
        each for route in routes for each in route.route_handlers if "POST" in each.http_methods
    ]
    assert len(found) == len(paths)
    return found


def test_not_beside_a_request(parts: list[str]) -> None:
    """Nothing is begun while one is there, and all of it afterwards."""

    async def scenario() -> None:
        app, worker = Chats(), worker_that_is(State.READY, num_streams=1)
        task = asyncio.create_task(ahead.get_ahead(app, worker))
        await some_turns()
        assert not parts
        worker.loaded.engine.num_streams = 0
        await task
        assert app.compiled_for == [worker.loaded]
        assert worker.loaded.num_moved == 3

    asyncio.run(scenario())
    assert len(parts) == 3


def test_large_pages_beside_requests(parts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is never idle has them after a while, and begins nothing else."""
    monkeypatch.setattr(ahead, "_PATIENCE_S", 0)

    async def scenario() -> None:
        app, worker = Chats(), worker_that_is(State.READY, num_streams=1)
        task = asyncio.create_task(ahead.get_ahead(app, worker))
        await some_turns()
        assert worker.loaded.num_moved == 3
        assert not parts
        task.cancel()

    asyncio.run(scenario())


def test_not_for_one_that_leaves(parts: list[str]) -> None:
    """A worker that drains begins nothing."""
    app, worker = Chats(), worker_that_is(State.DRAINING)
    asyncio.run(ahead.get_ahead(app, worker))
    assert not parts
    assert not app.compiled_for
    assert not worker.loaded.num_moved


@pytest.mark.usefixtures("parts")
def test_a_file_without_a_template() -> None:
    """Who asks for a chat is told; nothing fails before."""

    async def refused(loaded: object, preparing: object) -> None:
        raise RequestError("There is no chat template.")

    app = SimpleNamespace(dependencies={"chat": refused}, state=SimpleNamespace(preparing=None))
    asyncio.run(ahead.get_ahead(app, worker_that_is(State.READY)))
