"""`worker top` over real workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.requests.client import is_, once
from tests.support import http
from tests.support.programs.processes import Server, serving
from tests.support.programs.terminals import terminal
from worker.cli.main import main

KEY = "not-so-secret"


def test_a_request_at_work(slow_server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """What a worker says is understood: its state, the request, how far that is."""
    name = "watched-by-top"
    asked: dict[str, Any] = {
        "json": {"prompt": "Hello", "max_tokens": 1_900, "ignore_eos": True, "stream": True},
        "headers": {"x-request-id": name},
    }
    with http.stream("POST", slow_server.url + "/v1/completions", **asked):
        once(slow_server, name, "data", is_("writing"))
        assert main(["top", slow_server.url]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert main(["top", slow_server.url, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
    line = next(line for line in lines if line.startswith(name))
    assert "writing" in line
    assert "of 1,900" in line
    assert lines[0].startswith("ready  org/tiny  up ")
    assert name in [request["id"] for request in said["data"]]


def test_a_worker_that_is_killed_and_started_again(tiny: Path) -> None:
    """Live, gone, live; with the key that it asks for."""
    options = ("--model", tiny, "--ctx-size", "512", "--api-key", KEY)
    with serving(*options) as first:
        port = first.url.rpartition(":")[2]
        with terminal("top", first.url, "--api-key", KEY) as screen:
            screen.wait_for(lambda text: "ready  tiny" in text)
            first.process.kill()
            screen.wait_for(lambda text: "gone  tiny" in text)
            with serving(*options, "--port", port):
                screen.wait_for(lambda text: "ready  tiny" in text, anew=True)
                screen.press(b"q")
                assert screen.leave() == 0
