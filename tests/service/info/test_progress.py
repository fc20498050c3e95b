"""GET /v1/loading/progress: events while the model loads, one when it has."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import ggufs
from tests.support.processes import Server
from worker.errors import ModelLoadError
from worker.lifecycle.worker import Worker
from worker.service.info.progress import events_of
from worker.settings import Settings


def parse(text: str) -> list[Any]:
    frames = text.split("\n\n")
    assert frames.pop() == ""
    assert frames.pop() == "data: [DONE]"
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def test_while_loading(tmp_path: Path) -> None:
    """Progress only grows and the last event says ready; other paths are 503 until then."""
    path = ggufs.write_llama(
        tmp_path / "slow.gguf", layers=8, embedding=1024, feed_forward=2048, context=2048
    )
    server = Server("--model", str(path))
    try:
        with httpx.stream("GET", server.url + "/v1/loading/progress", timeout=30) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.iter_lines()
            first = json.loads(next(lines).removeprefix("data: "))
            if first["stage"] == "ready":
                pytest.fail("the model was ready before the first request")
            assert httpx.get(server.url + "/v1/models", timeout=10).status_code == 503
            rest = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        events = [first, *rest]
        assert events.pop() == {"stage": "ready"}
        assert all(event["stage"] == "loading_to_vram" for event in events)
        shares = [event["progress"] for event in events]
        assert shares == sorted(shares)
        assert all(0 <= share <= 1 for share in shares)
        assert all(event["layers_loaded"] <= event["layers_total"] for event in events)
        assert {event["layers_total"] for event in events} <= {0, 8}
    finally:
        server.end()


def test_when_ready(server: Server) -> None:
    """Who asks late gets the final event alone."""
    answer = httpx.get(server.url + "/v1/loading/progress")
    assert parse(answer.text) == [{"stage": "ready"}]


def test_failed_load() -> None:
    """A load that fails ends the events with its error."""

    async def scenario() -> list[Any]:
        worker = Worker(Settings(), Path("absent.gguf"))
        told: list[bytes] = []
        events = events_of(worker)
        told.append(await anext(events))
        worker.fail(ModelLoadError("It is broken."))
        return parse(b"".join([*told, *[event async for event in events]]).decode())

    first, last = asyncio.run(scenario())
    assert (first["stage"], first["progress"], first["layers_total"]) == ("loading_to_vram", 0, 0)
    assert last == {"stage": "error", "code": "MODEL_LOAD_FAILED", "message": "It is broken."}
