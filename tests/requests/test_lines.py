"""A line in the log for each request that is work or is refused, under its ids."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.requests.client import address, cancel, is_, look, once
from tests.support import http
from tests.support.programs.processes import Server, WorkerProcess, serving, until

SECRET = "a-prompt-that-nobody-may-read"
IDS = {"x-request-id": "mine", "x-correlation-id": "ours"}


@pytest.fixture
def own(tiny: Path) -> Any:
    """A server whose log is only this test's."""
    with serving("--model", tiny, "-c", "2048", "-t", "1", step_seconds=0.005) as server:
        yield server


def told(server: Server, count: int) -> list[dict[str, Any]]:
    """The lines of requests, once there are so many."""

    def lines() -> list[dict[str, Any]]:
        entries = [json.loads(line) for line in server.lines if line.startswith("{")]
        return [entry for entry in entries if entry["event"] == "request"]

    until(lambda: len(lines()) >= count)
    return lines()


def test_lines(own: Server) -> None:
    """One each, with tokens, times and how it ended; none for who only looks."""
    url = own.url + "/v1/completions"
    work = {"prompt": SECRET, "ignore_eos": True}
    for path in ("/health", "/metrics", "/v1/models", "/v1/loading/progress", "/v1/requests"):
        assert http.get(own.url + path).status_code == 200
    assert own.post({"content": SECRET}, "/tokenize").status_code == 200
    http.post(url, json={**work, "max_tokens": 3, "n": 2}, headers=IDS)
    http.post(url, json={**work, "temperature": "warm"}, headers=IDS)
    http.get(own.url + f"/{SECRET[:8]}?key={SECRET}")
    with http.stream("POST", url, json={**work, "max_tokens": 1_900, "stream": True}, headers=IDS):
        once(own, "mine", "data", is_("writing"))
        cancel(own, "mine", **{"x-request-id": "another", "x-correlation-id": "canceller"})
    told(own, 4)
    with http.stream("POST", url, json={**work, "max_tokens": 1_900, "stream": True}) as answer:
        next(answer.iter_lines())
    whole, refused, unknown, cancelled, left = told(own, 5)
    assert [whole["x_request_id"], whole["x_correlation_id"]] == ["mine", "ours"]
    assert (whole["route"], whole["status"]) == ("POST /v1/completions", 200)
    assert (whole["outcome"], whole["sequences"], whole["generated_tokens"]) == ("length", 2, 6)
    assert 0 <= whole["wait_s"] <= whole["first_token_s"] <= whole["duration_s"]
    assert whole["prompt_tokens"] > 0 == whole["cached_tokens"]
    assert (refused["outcome"], refused["status"], refused["code"]) == (
        "refused", 400, "invalid_request",
    )  # fmt: skip
    assert (unknown["route"], unknown["status"]) == ("GET /a-prompt", 404)
    assert (cancelled["outcome"], cancelled["code"]) == ("cancelled", "cancelled")
    assert [cancelled["x_request_id"], cancelled["x_correlation_id"]] == ["mine", "ours"]
    assert left["outcome"] == "left"
    assert left["x_request_id"].startswith("req-")
    assert "x_correlation_id" not in left
    with socket.create_connection(address(own)) as gone:
        gone.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n{"
        )
    early = told(own, 6)[-1]
    assert (early["route"], early["status"]) == ("POST /v1/completions", None)
    assert early["outcome"] == "left"
    assert "code" not in early
    assert SECRET not in "".join(own.lines)


def test_the_view_has_them_too(server: Server) -> None:
    """The last 50 lines."""
    for _ in range(60):
        server.post({"prompt": SECRET, "temperature": "warm"})
    view = look(server)
    assert len(view["log"]) == 50
    time, level, part, event, rest = view["log"][-1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", time)
    assert (level, part, event) == ("info", "service", "request")
    assert "outcome=refused" in rest
    assert SECRET not in json.dumps(view)


def test_nobody_writes_lines_of_their_own(tiny: Path) -> None:
    """Ids, paths, methods and names of clients stay inside their line, whatever they hold."""
    worker = WorkerProcess("serve", "--model", str(tiny), "--port", "0", "-t", "1")
    try:
        until(lambda: any("Ready after" in line for line in worker.lines))
        url = next(re.search(r"http://[\d.:]+\d", line) for line in worker.lines if "Open" in line)
        assert url is not None
        before = len(worker.lines)
        evil = 'x status=200 "outcome"=stop'
        for path, ids in (
            ("/a%0a2026-11-22%20[info]%20evil%0d%1b[31m%e2%80%a8", {"x-request-id": 'a" b=c'}),
            ("/" + "b" * 5_000, {"x-request-id": "\u00a0nbsp\u0085"}),
            ("/v1/requests/%0aevil/cancel", {"x-correlation-id": evil}),
        ):
            encoded = {name.encode(): value.encode("latin-1") for name, value in ids.items()}
            method = "GET" if "cancel" not in path else "POST"
            assert http.request(method, url[0] + path, headers=encoded).status_code == 404
        body = {"state": "x", "questions": {"n" * 5_000: {"type": "noul"}}}
        assert http.post(url[0] + "/v1/systemone", json=body).status_code == 422
        until(lambda: len(worker.lines) >= before + 4)
        http.post(url[0] + "/shutdown")
        assert worker.wait() == 0
    finally:
        worker.end()
    lines = worker.lines[before:]
    requests = [line for line in lines if " 404 in " in line or " 422 in " in line]
    assert len(requests) == 4
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith(("evil", "2026-11-22 [info]")) for line in lines)
    assert all(len(line) < 1_000 for line in requests)
