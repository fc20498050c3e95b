"""Requests are made ready in threads: who leaves is left out, and what takes long waits apart."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from worker.api.embeddings.schemas import EmbeddingsRequest
from worker.api.intake.body import Bodies
from worker.api.intake.preparing import Preparing
from worker.api.openai.schemas import ChatRequest
from worker.errors import LeftError, QueueFullError, RequestError
from worker.grammar.constraint import HAS_LEFT, IS_PATIENT, ImpatientError
from worker.lifecycle.adapters import ServedAdapters
from worker.lifecycle.loaded import Loaded
from worker.limits import LONG

PATIENCE_S = 30
PLAIN = ChatRequest()
FORMED = ChatRequest(response_format={"type": "json_object"})


class Client:
    """A request whose body is read; it may leave."""

    def __init__(self, length: str | None = None) -> None:
        """length: the header Content-Length"""
        self.headers = {} if length is None else {"content-length": length}
        self._left = asyncio.Event()
        self.state, self.scope = SimpleNamespace(), {"path": "/"}
        self.app = SimpleNamespace(state={"bodies": Bodies(1, 1, 1, bool)})

    async def receive(self) -> dict[str, str]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        self._left.set()


class Places:
    """The queue's places, for one request or none."""

    engine: Any
    media = None
    adapters = ServedAdapters(("m",), ())

    def __init__(self, count: int) -> None:
        self.engine, self.count = self, count

    @contextlib.contextmanager
    def place(self) -> Generator[None]:
        self.check_place()
        self.count -= 1
        try:
            yield
        finally:
            self.count += 1

    def check_place(self) -> None:
        if not self.count:
            raise QueueFullError("full")


class Scene:
    """One Preparing, and work that lasts until it is let go."""

    def __init__(self) -> None:
        self.preparing = Preparing()
        self.go_on = threading.Event()
        self.begun: list[str] = []

    def work(self, name: str, kind: str = "quick") -> str:
        if kind == "long" and not IS_PATIENT.get():
            raise ImpatientError
        self.begun.append(name)
        if kind in ("slow", "long"):
            assert self.go_on.wait(PATIENCE_S)
        if kind == "stoppable":
            while not HAS_LEFT.get()():
                assert not self.go_on.wait(0.001)
            raise LeftError("stopped")
        return name

    def ask(self, body: Any, *arguments: str, client: Client | None = None) -> asyncio.Task[str]:
        request: Any = client or Client()
        return asyncio.ensure_future(self.preparing.aside(request, body, self.work, *arguments))

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await asyncio.sleep(0.001)


def played(scenario: Callable[[Scene], Any]) -> None:
    async def play() -> None:
        scene = Scene()
        try:
            await scenario(scene)
        finally:
            scene.go_on.set()
            scene.preparing.close()

    asyncio.run(play())


def test_what_takes_long_makes_only_its_like_wait() -> None:
    """Others with and without a form pass by; with too many of its like it is refused."""

    async def scenario(scene: Scene) -> None:
        long = [scene.ask(FORMED, f"l{i}", "long") for i in range(LONG.most)]
        await scene.until(lambda: scene.begun)
        assert await scene.ask(FORMED, "formed") == "formed"
        assert await scene.ask(PLAIN, "plain") == "plain"
        await scene.until(lambda: len([task for task in long if not task.done()]) == len(long))
        with pytest.raises(QueueFullError, match="take long"):
            await scene.ask(FORMED, "one too many", "long")
        assert scene.begun == ["l0", "formed", "plain"]
        scene.go_on.set()
        assert await asyncio.gather(*long) == [f"l{i}" for i in range(LONG.most)]
        assert await scene.ask(FORMED, "again", "long") == "again"

    played(scenario)


def test_forms_have_threads_of_their_own() -> None:
    """Where they are all taken, a request without a form is made ready at once."""

    async def scenario(scene: Scene) -> None:
        slow = [scene.ask(FORMED, f"s{i}", "slow") for i in range(5)]
        await scene.until(lambda: len(scene.begun) == 2)
        assert await scene.ask(PLAIN, "plain") == "plain"
        assert len(scene.begun) == 3
        scene.go_on.set()
        await asyncio.gather(*slow)

    played(scenario)


@pytest.mark.parametrize("kind", ["slow", "long"])
def test_who_leaves_leaves_the_queue(kind: str) -> None:
    """What has not begun never begins; what has begun goes on for nobody."""

    async def scenario(scene: Scene) -> None:
        clients = [Client() for _ in range(4)]
        tasks = [
            scene.ask(FORMED, f"t{i}", kind, client=client) for i, client in enumerate(clients)
        ]
        running = 2 if kind == "slow" else 1
        await scene.until(lambda: len(scene.begun) == running)
        for left in (3, 0):
            clients[left].leave()
            with pytest.raises(LeftError):
                await tasks[left]
        assert not scene.preparing.is_idle
        scene.go_on.set()
        assert await asyncio.gather(*tasks[1:3]) == ["t1", "t2"]
        assert "t3" not in scene.begun
        await scene.until(lambda: scene.preparing.is_idle)

    played(scenario)


def test_work_is_told_that_its_client_left() -> None:
    """So it can stop in the middle."""

    async def scenario(scene: Scene) -> None:
        client = Client()
        task = scene.ask(PLAIN, "t", "stoppable", client=client)
        await scene.until(lambda: scene.begun)
        client.leave()
        with pytest.raises(LeftError, match="left"):
            await task
        await scene.until(lambda: scene.preparing.is_idle)

    played(scenario)


def test_a_full_queue_is_told_at_once() -> None:
    """Before the body is read; a place is free again once the request is ready or refused."""

    async def scenario(scene: Scene) -> None:
        request: Any = Client()
        places = Places(1)
        loaded = cast("Loaded", places)
        make = scene.preparing.make

        def refuse() -> None:
            raise RequestError("no")

        slow = asyncio.ensure_future(make(request, PLAIN, loaded, scene.work, "a", "slow"))
        await scene.until(lambda: scene.begun)
        with pytest.raises(QueueFullError):
            await scene.preparing.body(request, ChatRequest, loaded)
        with pytest.raises(QueueFullError):
            await make(request, PLAIN, loaded, scene.work, "b")
        scene.go_on.set()
        assert await slow == "a"
        for _ in range(2):
            with pytest.raises(RequestError, match="no"):
                await make(request, PLAIN, loaded, refuse)

    played(scenario)


@pytest.mark.parametrize(
    ("length", "is_here"),
    [("200", True), ("1024", True), ("1025", False), (None, False), ("x", False), ("", False)],
)
def test_few_texts_need_no_thread(length: str | None, is_here: bool) -> None:
    """A body of at most 1,024 bytes becomes tokens in the event loop; a place is needed all the
    same."""
    request, body = cast("Any", Client(length)), EmbeddingsRequest(input="a")

    async def scene() -> tuple[int, int]:
        preparing = Preparing()
        places = cast("Loaded", Places(1))
        where = await preparing.texts(request, body, places, threading.get_ident)
        with pytest.raises(QueueFullError):
            await preparing.texts(request, body, cast("Loaded", Places(0)), threading.get_ident)
        preparing.close()
        return where, threading.get_ident()

    where, loop = asyncio.run(scene())
    assert (where == loop) is is_here
