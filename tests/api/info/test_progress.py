"""GET /v1/loading/progress: events while the model loads, one when it has."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.support import http
from tests.support.programs.processes import Server, starting
from worker.api.info.progress import events_of
from worker.errors import ModelLoadError
from worker.lifecycle.worker import Worker
from worker.settings import Settings


def parse(text: str) -> list[Any]:
    frames = text.split("\n\n")
    assert frames.pop() == ""
    assert frames.pop() == "data: [DONE]"
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def test_while_loading(tiny: Path, tmp_path: Path) -> None:
    """Progress only grows and the last event says ready; other paths are 503 until then."""
    loaded = tmp_path / "loaded"
    env = {"LOADED": str(loaded)}
    with starting("--model", tiny, "-t", "1", env=env, step_seconds=0.03) as server:
        with http.stream("GET", server.url + "/v1/loading/progress") as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.iter_lines()
            first = json.loads(next(lines).removeprefix("data: "))
            assert http.get(server.url + "/v1/models").status_code == 503
            loaded.touch()
            rest = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        events = [first, *rest]
        assert events.pop() == {"stage": "ready"}
        assert all(event["stage"] == "loading_to_vram" for event in events)
        shares = [event["progress"] for event in events]
        assert shares == sorted(shares)
        assert all(0 <= share <= 1 for share in shares)
        assert all(event["layers_loaded"] <= event["layers_total"] for event in events)
        assert {event["layers_total"] for event in events} <= {0, 2}
        assert len(set(shares)) > 1


def test_when_ready(server: Server) -> None:
    """A request after the load gets the final event alone."""
    answer = http.get(server.url + "/v1/loading/progress")
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
