"""The engine's thread, over a backend without a model."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.support.fakes import FakeBackend
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.engine.thread import EngineThread


class SlowStart(FakeBackend):
    """Making a request ready takes longer than the time there is for it between two steps."""

    def __init__(self) -> None:
        super().__init__(num_cells=60_000, num_slots=16, capacity=64, vocab_size=10**6)
        self.events: list[str] = []

    def make_sampler(self, request: Request) -> Any:
        self.events.append("ready")
        if request.id != "stream":
            time.sleep(0.06)
        return super().make_sampler(request)

    def decode(self) -> None:
        self.events.append("step")
        time.sleep(0.002)  # the stream is still there when the last request is ready
        super().decode()


def asked(name: str, max_tokens: int) -> Request:
    return Request(id=name, prompt=(len(name), 2), max_tokens=max_tokens)


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
