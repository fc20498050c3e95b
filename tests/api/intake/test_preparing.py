"""Requests are made ready in threads: who leaves is left out, and what takes long waits apart."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.facts import facts_with
from worker.api.intake.body import Bodies
from worker.api.intake.chat.chat_request import ChatRequest
from worker.api.intake.embeddings import EmbeddingsRequest
from worker.api.intake.preparing import Preparing
from worker.budget import Budget
from worker.engine.stream import Lane
from worker.errors import LeftError, QueueFullError, RequestError, UnavailableError
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


FACTS = facts_with()


class Places:
    """The queue's places, for one request or none."""

    def __init__(self, count: int) -> None:
        self.count = count

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


def lane_with(count: int) -> Callable[[], Lane]:
    places = cast("Any", Places(count))
    return lambda: places


class Scene:
    """One Preparing, and work that lasts until it is let go."""

    def __init__(self, places: int = 1) -> None:
        self.preparing = Preparing(lane_with(places))
        self.go_on = threading.Event()
        self.asked: list[str] = []
        self.begun: list[str] = []

    def work(self, name: str, kind: str, budget: Budget) -> str:
        self.asked.append(name)
        if kind in ("long", "media", "questions"):
            budget.make_way(kind)
            budget.make_way(kind)  # it is there
        self.begun.append(name)
        if kind in ("slow", "long", "media", "questions"):
            assert self.go_on.wait(PATIENCE_S)
        if kind == "stoppable":
            while not budget.has_left():
                assert not self.go_on.wait(0.001)
            raise LeftError("stopped")
        return name

    def ask(
        self, body: Any, name: str, kind: str = "quick", client: Client | None = None
    ) -> asyncio.Task[str]:
        request: Any = client or Client()
        return asyncio.ensure_future(
            self.preparing.aside(request, body, partial(self.work, name, kind))
        )

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
        formed = [scene.ask(FORMED, name, "slow") for name in ("f0", "f1")]
        # They have all places for forms, so no long one has one.
        await scene.until(lambda: {"f0", "f1"} < set(scene.begun))
        assert await scene.ask(PLAIN, "plain") == "plain"
        with pytest.raises(QueueFullError, match="take long"):
            await scene.ask(PLAIN, "one too many", "long")
        await scene.until(lambda: len(scene.begun) == 4)
        assert len([name for name in scene.begun if name.startswith("l")]) == 1
        scene.go_on.set()
        assert await asyncio.gather(*long) == [f"l{i}" for i in range(LONG.most)]
        assert await asyncio.gather(*formed) == ["f0", "f1"]
        assert await scene.ask(FORMED, "again", "long") == "again"

    played(scenario)


def test_media_make_only_media_wait() -> None:
    """Four are read at once; one that still waits when the worker stops is told so."""

    async def scenario(scene: Scene) -> None:
        clients = [Client() for _ in range(6)]
        tasks = [
            scene.ask(PLAIN, f"m{i}", "media", client=client) for i, client in enumerate(clients)
        ]
        await scene.until(lambda: len(scene.begun) == 4 and len(scene.asked) == len(tasks))
        assert await scene.ask(PLAIN, "plain") == "plain"
        assert await scene.ask(FORMED, "formed") == "formed"
        left, stopped = (i for i in range(len(tasks)) if f"m{i}" not in scene.begun)
        clients[left].leave()
        with pytest.raises(LeftError):
            await tasks[left]
        scene.preparing.close()
        with pytest.raises(UnavailableError, match="stopped"):
            await tasks[stopped]
        scene.go_on.set()
        await asyncio.gather(*(tasks[i] for i in range(len(tasks)) if i not in (left, stopped)))
        await scene.until(lambda: scene.preparing.is_idle)
        assert len(scene.begun) == 6

    played(scenario)


def test_many_questions_make_only_their_like_wait() -> None:
    """Two decisions with hundreds of questions are made ready at once, whatever comes beside."""

    async def scenario(scene: Scene) -> None:
        tasks = [scene.ask(PLAIN, f"q{i}", "questions") for i in range(60)]
        await scene.until(lambda: len(scene.asked) == len(tasks))
        assert await scene.ask(PLAIN, "plain") == "plain"
        assert len(scene.begun) == 3
        scene.go_on.set()
        await asyncio.gather(*tasks)

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
        clients = {f"t{i}": Client() for i in range(4)}
        tasks = {
            name: scene.ask(FORMED, name, kind, client=client) for name, client in clients.items()
        }
        running = 2 if kind == "slow" else 1
        await scene.until(lambda: len(scene.begun) == running)
        waiting = next(name for name in reversed(tasks) if name not in scene.begun)
        for left in (waiting, scene.begun[0]):
            clients[left].leave()
            with pytest.raises(LeftError):
                await tasks.pop(left)
        assert not scene.preparing.is_idle
        scene.go_on.set()
        assert await asyncio.gather(*tasks.values()) == list(tasks)
        assert waiting not in scene.begun
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
        texts = scene.preparing.texts

        def refuse(_budget: Budget) -> None:
            raise RequestError("no")

        slow = asyncio.ensure_future(texts(request, PLAIN, FACTS, partial(scene.work, "a", "slow")))
        await scene.until(lambda: scene.begun)
        with pytest.raises(QueueFullError):
            await scene.preparing.body(request, ChatRequest)
        with pytest.raises(QueueFullError):
            await texts(request, PLAIN, FACTS, partial(scene.work, "b", "quick"))
        scene.go_on.set()
        assert await slow == "a"
        for _ in range(2):
            with pytest.raises(RequestError, match="no"):
                await texts(request, PLAIN, FACTS, refuse)

    played(scenario)


@pytest.mark.parametrize(
    ("length", "is_here"),
    [("200", True), ("1024", True), ("1025", False), (None, False), ("x", False), ("", False)],
)
def test_few_texts_need_no_thread(length: str | None, is_here: bool) -> None:
    """A body of at most 1,024 bytes becomes tokens in the event loop; a place is needed all the
    same."""
    request, body = cast("Any", Client(length)), EmbeddingsRequest(input="a")

    def here(_budget: Budget) -> int:
        return threading.get_ident()

    async def scene() -> tuple[int, int]:
        preparing, full = Preparing(lane_with(1)), Preparing(lane_with(0))
        where = await preparing.texts(request, body, FACTS, here)
        with pytest.raises(QueueFullError):
            await full.texts(request, body, FACTS, here)
        preparing.close()
        full.close()
        return where, threading.get_ident()

    where, loop = asyncio.run(scene())
    assert (where == loop) is is_here
