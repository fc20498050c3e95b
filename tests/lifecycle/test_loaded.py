"""What was loaded moves into large pages once the worker is ready."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from worker.lifecycle import loaded
from worker.lifecycle.loaded import Loaded
from worker.llama.process import memory


@pytest.mark.parametrize("num_streams", [0, 2])
def test_large_pages_come_slowly_beside_requests(
    num_streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stretch at a time: all of them soon while nobody asks, and in the end in any case."""
    stretches = [range(at, at + 4, 2) for at in range(0, 12, 4)]
    moved: list[range] = []
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(
        loaded, "asyncio", SimpleNamespace(sleep=sleep, to_thread=asyncio.to_thread)
    )

    def stretches_of(_size: int) -> list[range]:
        return stretches

    def collapse(stretch: range) -> int:
        moved.append(stretch)
        return 4

    monkeypatch.setattr(memory, "stretches", stretches_of)
    monkeypatch.setattr(memory, "collapse", collapse)
    of: Any = SimpleNamespace(engine=SimpleNamespace(num_streams=num_streams))
    asyncio.run(Loaded.use_large_pages(of))
    assert moved == stretches
    assert (min(pauses) > 0.1) == bool(num_streams)
