"""The engine's thread, over a backend without a model."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.support.descriptors import num_files
from tests.support.fakes import FakeBackend, continuation
from worker.account import Account
from worker.cache.store import Store
from worker.engine import thread as thread_module
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.stream import Stream
from worker.engine.thread import EngineThread, Outbox
from worker.errors import QueueFullError, UnavailableError, WorkerError
from worker.llama.process.pipe import write


class SlowStart(FakeBackend):
    """Making a request ready takes longer than the time there is for it between two steps."""

    def __init__(self) -> None:
        super().__init__(num_cells=60_000, num_slots=16, capacity=64, vocab_size=10**6)
        self.events: list[str] = []

    def make_sampler(self, request: Request, resumption: Any = None) -> Any:
        self.events.append("ready")
        if request.id != "stream":
            time.sleep(0.06)
        return super().make_sampler(request, resumption)

    def decode(self) -> None:
        self.events.append("step")
        time.sleep(0.002)  # the stream is still there when the last request is ready
        super().decode()


def asked(name: str, max_tokens: int) -> Request:
    return Request(
        id=name, prompt=Prompt((len(name), 2)), params=GenerationParams(max_tokens=max_tokens)
    )


def test_streams_go_on_while_requests_are_made_ready() -> None:
    """However many requests arrive at once, a running stream gets steps in between."""
    backend = SlowStart()

    async def scenario() -> None:
        thread = EngineThread(Engine(backend, time.monotonic), 16, lambda error: None)
        thread.start()
        with thread.submit([asked("stream", 50_000)]) as stream:
            await stream.take()
            with thread.submit([asked(f"copy{i}", 1) for i in range(8)]) as copies:
                while copies.is_running:
                    await copies.take()
        assert await asyncio.to_thread(thread.stop, 10)

    asyncio.run(scenario())
    assert backend.events.count("ready") == 9
    assert "ready ready" not in " ".join(backend.events)


class Quick(FakeBackend):
    """Steps of 4 ms by its own clock; after some of them something else happens."""

    def __init__(self, after: dict[int, Callable[[], object]]) -> None:
        super().__init__(vocab_size=5000)
        self.at = 100.0
        self._after = after

    def clock(self) -> float:
        return self.at

    def decode(self) -> None:
        super().decode()
        self.at += 0.004
        self._after.get(len(self.batch_sizes), bool)()


def test_quick_tokens_go_several_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one and the last one at once, the others each ten milliseconds."""
    backend, rung = Quick({}), list[bool]()
    monkeypatch.setattr(thread_module, "time", SimpleNamespace(monotonic=backend.clock))
    put = Outbox[Any].put

    def noted(outbox: Outbox[Any], item: Any, *, rings: bool) -> None:
        rung.append(rings)
        put(outbox, item, rings=rings)

    monkeypatch.setattr(Outbox, "put", noted)

    async def scenario() -> list[int | None]:
        thread = EngineThread(Engine(backend, backend.clock), 4, lambda error: None)
        stream = thread.submit([asked("stream", 12)])
        thread.start()
        tokens: list[int | None] = []
        while stream.is_running:
            tokens.extend(delta.token for delta in await stream.take())
        assert await asyncio.to_thread(thread.stop, 10)
        return tokens

    assert len(asyncio.run(scenario())) == 12
    assert [number for number, rings in enumerate(rung, 1) if rings] == [1, 4, 7, 10, 12]


@pytest.mark.parametrize("cut_off", [False, True])
def test_what_ended_before_the_stop_is_kept(cut_off: bool) -> None:
    """Also where the stop comes right after the last delta, or ends a request that still runs."""
    backend = FakeBackend(num_cells=600, num_slots=4, vocab_size=5000)
    store = Store(1 << 20, needs_rest=False)
    engine = Engine(backend, lambda: backend.now, store=store)
    step, prompt = engine.step, (3, *range(100, 150))

    async def scenario() -> None:
        thread = EngineThread(engine, 4, lambda error: None)
        stopped: list[bool] = []
        is_told = threading.Event()

        def stepped() -> Any:
            deltas = step()
            if deltas and not stopped and (cut_off or deltas[-1].is_last):
                if cut_off:
                    thread.abort("asked")
                # Its message is there before the engine looks for the next one.
                caller = threading.Thread(target=lambda: stopped.append(thread.stop(0)))
                caller.start()
                caller.join()
                is_told.set()
            return deltas

        engine.step = stepped
        params = GenerationParams(max_tokens=500 if cut_off else 2)
        with thread.submit([Request(id="asked", prompt=Prompt(prompt), params=params)]):
            thread.start()
            assert await asyncio.to_thread(is_told.wait, 60)
            assert await asyncio.to_thread(thread.stop, 60)
        assert stopped == [False]

    asyncio.run(scenario())
    assert store.find(np.array(prompt, np.int32)).num_tokens == len(prompt)


def test_what_is_done_between_steps() -> None:
    """It comes after what was submitted before, also while nobody asks; what it raises is raised to
    who asked for it, and one that comes too late gets an answer too."""
    backend = SlowStart()

    async def scenario() -> list[object]:
        thread = EngineThread(Engine(backend, time.monotonic), 4, lambda error: None)
        thread.start()
        found: list[object] = [await thread.between_steps(threading.current_thread)]
        with thread.submit([asked("stream", 50_000)]):
            found.append(await thread.between_steps(lambda: thread.status_of("stream") is not None))
            with pytest.raises(ZeroDivisionError):
                await thread.between_steps(lambda: 1 / 0)
        assert await asyncio.to_thread(thread.stop, 10)
        with pytest.raises(UnavailableError):
            await thread.between_steps(list)
        return found

    thread, is_known = asyncio.run(scenario())
    assert isinstance(thread, threading.Thread)
    assert (thread.name, is_known) == ("engine", True)


def test_a_token_does_not_wait_for_anothers_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept for a moment is told before a step that may take long."""
    has_come, has_read = threading.Event(), threading.Event()
    in_time: list[bool] = []
    backend = Quick(
        {
            5: lambda: has_come.wait(60),  # its token is kept; then the other prompt is there
            6: lambda: in_time.append(has_read.wait(60)),
        }
    )
    monkeypatch.setattr(thread_module, "time", SimpleNamespace(monotonic=backend.clock))

    async def scenario() -> None:
        thread = EngineThread(Engine(backend, backend.clock), 4, lambda error: None)
        stream = thread.submit([asked("stream", 12)])
        thread.start()
        tokens: list[int | None] = []
        while len(tokens) < 4:
            tokens.extend(delta.token for delta in await stream.take())
        with thread.submit([asked("another", 1)]):
            has_come.set()
            while len(tokens) < 5:
                tokens.extend(delta.token for delta in await stream.take())
            has_read.set()
            while stream.is_running:
                await stream.take()
        assert await asyncio.to_thread(thread.stop, 10)

    asyncio.run(scenario())
    assert in_time == [True]


def test_what_was_kept_is_told_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is ended with an error has all that was written until then."""
    kept, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        kept.set()
        goes_on.wait(60)

    backend = Quick({6: hold})  # the fifth token is kept
    monkeypatch.setattr(thread_module, "time", SimpleNamespace(monotonic=backend.clock))

    async def scenario() -> list[int | None]:
        thread = EngineThread(Engine(backend, backend.clock), 4, lambda error: None)
        stream = thread.submit([asked("stream", 12)])
        thread.start()
        assert await asyncio.to_thread(kept.wait, 60)
        stream.fail(WorkerError("enough"))
        goes_on.set()
        tokens = [delta.token for delta in await stream.take()]
        with pytest.raises(WorkerError, match="enough"):
            await stream.take()
        assert await asyncio.to_thread(thread.stop, 10)
        return tokens

    assert len(asyncio.run(scenario())) == 5


class Fails(FakeBackend):
    """The fourth step raises what nobody expects."""

    def decode(self) -> None:
        if len(self.batch_sizes) == 3:
            raise ZeroDivisionError("a broken backend")
        super().decode()


def test_what_was_sampled_before_a_failure_is_told_before_it() -> None:
    """All streams end with the error, the owner hears of it, and no file stays open."""
    backend = Fails(vocab_size=5000)
    told: list[WorkerError] = []

    async def scenario() -> list[int | None]:
        before = num_files()
        thread = EngineThread(Engine(backend, time.monotonic), 4, told.append)
        stream = thread.submit([asked("stream", 50)])
        thread.start()
        tokens: list[int | None] = []

        async def read() -> None:
            while True:
                tokens.extend(delta.token for delta in await stream.take())

        with pytest.raises(WorkerError, match="a broken backend"):
            await read()
        assert told
        with pytest.raises(WorkerError):
            thread.submit([asked("another", 1)])
        assert num_files() == before
        return tokens

    assert len(asyncio.run(scenario())) == 3


def test_many_requests_come_and_go_from_many_tasks() -> None:
    """Each reader gets all tokens of its request in order, whoever leaves meanwhile."""
    backend = FakeBackend(num_cells=4096, num_slots=16, max_outputs=16, vocab_size=5000)

    async def reader(thread: EngineThread, number: int) -> None:
        prompt = [number + 1, 7]
        request = Request(
            id=str(number), prompt=Prompt(tuple(prompt)), params=GenerationParams(max_tokens=40)
        )
        tokens: list[int | None] = []
        with thread.submit([request]) as stream:
            while stream.is_running:
                tokens += [delta.token for delta in await stream.take()]
                if number % 3 == 0 and len(tokens) >= number % 7 + 1:
                    return  # leaves
        assert tokens == continuation(prompt, 40, 5000)

    async def scenario() -> None:
        thread = EngineThread(Engine(backend, time.monotonic), 400, lambda error: None, write)
        thread.start()
        await asyncio.gather(*(reader(thread, number) for number in range(300)))
        assert thread.num_streams == 0
        assert await asyncio.to_thread(thread.stop, 10)

    asyncio.run(scenario())
    assert backend.live_samplers == 0


def test_no_account_fills_the_queue() -> None:
    """One with a name has half of the places at most, whichever it asks for; the others are for
    everybody, and what has ended gives its place back."""

    async def ask() -> None:
        engine = Engine(FakeBackend(num_cells=400, num_slots=2), lambda: 0.0)
        thread = EngineThread(engine, 6, lambda _: None)  # which does not run

        def add(name: str, account: str) -> Stream:
            whose = Account(account)
            return thread.submit([msgspec.structs.replace(asked(name, 5), account=whose)])

        streams = [add(f"a{n}", "alice") for n in range(4)]
        with pytest.raises(QueueFullError, match="alice has 4 requests"):
            add("a4", "alice")
        with pytest.raises(QueueFullError, match="alice has 4 requests"):
            thread.check_place(account=Account("alice"))
        streams[0].close()
        add("a5", "alice")
        add("b", "bob")
        for n in range(3):
            add(f"c{n}", "")
        with pytest.raises(QueueFullError, match="8 requests run or wait"):
            add("d", "dora")

    asyncio.run(ask())


def test_a_kept_place_is_not_given_to_another() -> None:
    """A request that is made ready counts as one that waits."""
    backend = FakeBackend(num_cells=256, num_slots=1, max_outputs=1, vocab_size=50)

    async def scenario() -> None:
        thread = EngineThread(Engine(backend, time.monotonic), 1, lambda error: None, write)
        two = [
            Request(id=name, prompt=Prompt((1,)), params=GenerationParams(max_tokens=1))
            for name in "ab"
        ]
        with thread.place():
            assert thread.num_streams == 1
            with pytest.raises(QueueFullError):
                thread.submit(two)
        thread.submit(two).close()

    asyncio.run(scenario())
