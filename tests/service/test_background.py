"""Background responses outlive their worker: what was written is kept in --state-dir."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.programs.processes import Server, serving, until
from tests.support.resuming import id_of, numbered_events

BODY: dict[str, Any] = {
    "input": "Tell me. " * 60, "temperature": 0, "max_output_tokens": 250, "ignore_eos": True,
}  # fmt: skip
NUM_PROMPT = 503  # tokens of it


def begin(server: Server, **fields: Any) -> dict[str, Any]:
    answer = server.post({**BODY, **fields}, "/v1/responses")
    assert answer.status_code == 200, answer.text
    return answer.json()


def get(server: Server, name: str, query: str = "") -> Any:
    answer = http.get(f"{server.url}/v1/responses/{name}{query}")
    assert answer.status_code == 200, answer.text
    return answer


def texts(response: dict[str, Any]) -> list[str]:
    return [part["text"] for item in response["output"] for part in item.get("content", ())]


def num_parts(folder: Path) -> int:
    """How often it was written down."""
    with contextlib.closing(sqlite3.connect(folder / "state.db")) as connection:
        return connection.execute("SELECT count(*) FROM response_parts").fetchone()[0]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_it_goes_on(tiny: Path, tmp_path: Path, end: signal.Signals) -> None:
    """Text, counts and events are those of a response that nothing has disturbed; then it stays,
    also for what goes on from it, until it is deleted. The prompt's cells are on the disk: an
    answer before left them, or the response itself in a worker that was stopped."""
    options = ("--model", tiny, "--ctx-size", "4096", "-t", "1", "--state-dir", tmp_path / "state",
               "--drain-timeout", "0.1", "--draft", "none",
               "--cache-dir", tmp_path / "cells")  # fmt: skip
    with serving(*options, step_seconds=0.01) as server:
        if end is signal.SIGKILL:
            begin(server)
        name = begin(server, background=True, user="me")["id"]
        until(lambda: num_parts(tmp_path / "state") > 0)
        server.process.send_signal(end)
        server.wait()
    with serving(*options) as server:
        assert 0 < server.wait_for("a response goes on")["tokens"] < 250
        until(lambda: get(server, name).json()["status"] != "in_progress")
        found = get(server, name).json()
        whole = begin(server)
        assert texts(found) == texts(whole)
        assert (found["user"], found["background"]) == ("me", True)
        assert found["usage"]["output_tokens"] == whole["usage"]["output_tokens"] == 250
        assert found["usage"]["input_tokens_details"]["cached_tokens"] == NUM_PROMPT
        events = numbered_events(get(server, name, "?stream=true").content)
        assert list(map(id_of, events)) == list(range(len(events)))
        assert not any(b":w " in event for event in events)
        server.process.terminate()
        assert server.wait() == 0
    with serving(*options) as server:
        assert get(server, name).json() == found
        assert begin(server, previous_response_id=name)["status"] == "incomplete"
        assert http.client.delete(f"{server.url}/v1/responses/{name}").status_code == 200
        with sqlite3.connect(tmp_path / "state" / "state.db") as connection:
            assert not connection.execute("SELECT * FROM responses").fetchall()
        connection.close()
