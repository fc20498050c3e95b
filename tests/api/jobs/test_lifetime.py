"""How long jobs live: their time limit, unread ones, the drain."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.api.jobs.client import GREEDY, LONG, create, error_of, execute, read, streamed, types
from tests.support import http
from tests.support.programs.processes import Server, serving, until


def test_timeout(tiny: Path) -> None:
    """A job that takes too long ends with INFERENCE_TIMEOUT, which may be tried again."""
    options = ("-c", "2048", "-t", "1", "--inference-timeout-sec", "0.1")
    with serving("--model", tiny, *options, step_seconds=0.02) as server:
        events = execute(server, **LONG)
        assert types(events)[-1] == "error"
        assert events[-1][1]["code"] == "INFERENCE_TIMEOUT"
        assert events[-1][1]["retriable"] is True
        error = error_of(server.post(LONG, "/v1/infer"), 504)
        assert error["code"] == "INFERENCE_TIMEOUT"
        server.wait_until(slots_processing=0)


def test_unread_jobs_are_bounded(server: Server) -> None:
    """More unread jobs than are kept get 429 with Retry-After; to read one makes room."""
    paths: list[str] = []

    def accepted() -> bool:  # we may ask faster than the engine works, and its queue is short
        answer = server.post({**GREEDY, "max_tokens": 1}, "/v1/jobs")
        if answer.is_success:
            paths.append(answer.json()["sse_url"])
        return answer.is_success

    for _ in range(128):
        until(accepted)
    server.wait_until(slots_processing=0, queue_depth=0)
    answer = server.post(GREEDY, "/v1/jobs")
    error = error_of(answer, 429)
    assert (error["code"], error["retriable"]) == ("QUEUE_FULL", True)
    assert "jobs wait to be read" in error["message"]
    assert int(answer.headers["retry-after"]) >= 1
    assert types(execute(server, max_tokens=1))[-1] == "end"  # it is its own reader
    read(server, paths.pop())
    paths.append(create(server, max_tokens=1))
    for path in paths:
        assert types(read(server, path))[-1] == "[DONE]"


def test_accepted_before_the_drain(tiny: Path) -> None:
    """While the worker drains, what it accepted is read to its end and can be cancelled."""
    options = ("-c", "2048", "-t", "1", "--drain-timeout", "600")
    with serving("--model", tiny, *options, step_seconds=0.02) as server:
        held = create(server, job_id="held", **LONG)
        path = create(server)
        with http.stream("GET", server.url + held) as answer:
            lines = streamed(answer)
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("stopping")
            assert server.post(GREEDY, "/execute").status_code == 503
            assert types(read(server, path))[-2:] == ["end", "[DONE]"]
            assert server.post({"job_id": "held"}, "/cancel").status_code == 202
            assert any("CANCELLED" in line for line in lines)
        assert server.wait() == 0
