"""What a request holds goes with it: nothing of it waits for Python's cycle collector.

That one looks seldom, because it knows nothing of memory outside Python: matchers, copies of
states, and bodies of megabytes would wait for it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.programs.processes import PATIENCE_S, Server, serving
from tests.support.programs.uncollected import VARIABLE

QUESTION = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
WORDS = {"enum": [f"word{number}" for number in range(300)]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"type": "integer"}}}}}
# Path, body, status.
ASKED: dict[str, tuple[str, dict[str, Any], int]] = {
    "text": ("/v1/completions", {"prompt": "Once", "max_tokens": 8}, 200),
    "stream": ("/v1/completions", {"prompt": "Once", "max_tokens": 8, "stream": True}, 200),
    "copies": ("/v1/completions", {"prompt": "Once", "max_tokens": 8, "best_of": 3}, 200),
    "chat": ("/v1/chat/completions", QUESTION, 200),
    "long": ("/v1/completions", {"prompt": "Once upon a time " * 60, "max_tokens": 2}, 200),
    "tools": ("/v1/chat/completions", {**QUESTION, "tools": [TOOL]}, 200),
    "schema": ("/v1/chat/completions", {**QUESTION, "json_schema": SCHEMA}, 200),
    "words": ("/v1/chat/completions", {**QUESTION, "json_schema": WORDS}, 200),
    "messages": ("/v1/messages", QUESTION, 200),
    "responses": ("/v1/responses", {"input": "Hello", "max_output_tokens": 8}, 200),
    "ollama": ("/api/chat", {**QUESTION, "stream": False}, 200),
    "job": ("/v1/infer", {"prompt": "Once", "max_tokens": 8}, 200),
    "wrong": ("/v1/completions", {"prompt": "Once", "temperature": "warm"}, 400),
    "too long": ("/v1/completions", {"prompt": "Once upon a time " * 2000}, 400),
    "no schema": ("/v1/chat/completions", {**QUESTION, "json_schema": {"not": {}}}, 400),
}


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Where the worker writes what is left."""
    return tmp_path / "told.json"


@pytest.fixture
def uncollected(told: Path) -> Generator[Server]:
    """Each kind of request was answered before, so that what is made once is there."""
    module = "tests.support.programs.uncollected"
    with serving("--ctx-size", "2048", env={VARIABLE: str(told)}, module=module) as server:
        ask_all(server)
        left(server, told)
        yield server


def ask_all(server: Server) -> None:
    for name, (path, body, status) in ASKED.items():
        answer = http.post(server.url + path, json=body)
        assert answer.status_code == status, (name, answer.text)


def left(server: Server, told: Path) -> dict[str, int]:
    """What the collector would have removed since it was asked last."""
    told.unlink(missing_ok=True)
    os.kill(server.pid, signal.SIGUSR2)
    deadline = time.monotonic() + PATIENCE_S
    while not told.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return json.loads(told.read_text())


def test_nothing_of_a_request_is_left(uncollected: Server, told: Path) -> None:
    """Nothing of ours, and no array. (A transport of asyncio is a cycle of its own.)"""
    ask_all(uncollected)
    found = left(uncollected, told)
    assert {kind for kind in found if kind.startswith(("worker.", "numpy."))} == set(), found
