"""Jobs that end early: cancelled, or left by their readers."""

from __future__ import annotations

import json
import socket

import pytest

from tests.api.jobs.client import (
    GREEDY,
    LONG,
    begin,
    create,
    error_of,
    execute,
    read,
    streamed,
    types,
)
from tests.support import http
from tests.support.metrics import count_ended
from tests.support.programs.processes import Server, until


def test_cancelled_before_it_is_read(slow_server: Server) -> None:
    """A cancelled job stops generating; its reader gets what there was, then CANCELLED."""
    path = create(slow_server, job_id="c-1", **LONG)
    for _ in range(2):
        answer = slow_server.post({"job_id": "c-1"}, "/cancel")
        assert (answer.status_code, answer.json()["cancelled"]) == (202, True)
    slow_server.wait_until(slots_processing=0, queue_depth=0)
    events = read(slow_server, path)
    assert types(events)[0] == "started"
    assert types(events)[-2:] == ["error", "[DONE]"]
    error = events[-2][1]
    assert (error["code"], error["retriable"]) == ("CANCELLED", False)


@pytest.mark.parametrize("how", ["execute", "jobs"])
def test_cancelled_while_it_is_read(slow_server: Server, how: str) -> None:
    """The stream of a cancelled job ends with one terminal event, the error CANCELLED."""
    with http.stream(**begin(slow_server, how, job_id="c-2", **LONG)) as answer:
        lines = streamed(answer)
        while '"token"' not in next(lines):
            pass
        assert slow_server.post({"job_id": "c-2"}, "/cancel").json() == {
            "job_id": "c-2",
            "cancelled": True,
        }
        rest = [json.loads(line[6:]) for line in lines if "[DONE]" not in line]
    terminal = [event for event in rest if event["type"] in ("end", "error")]
    assert [event.get("code") for event in terminal] == ["CANCELLED"]
    assert rest[-1] is terminal[0]
    slow_server.wait_until(slots_processing=0)


def test_cancelled_after_its_end(server: Server) -> None:
    """A job that ended before it was cancelled is read to its end, the one terminal event."""
    before = count_ended(server.url, "length")
    path = create(server, job_id="c-4")
    until(lambda: count_ended(server.url, "length") > before)
    assert server.post({"job_id": "c-4"}, "/cancel").status_code == 202
    assert types(read(server, path)) == ["started", "token", "end", "[DONE]"]


def test_cancel_is_idempotent(server: Server) -> None:
    """To cancel a job that ended, or never was, is 202 too; the id is free again."""
    execute(server, job_id="c-3")
    for name in ("c-3", "never"):
        answer = server.post({"job_id": name}, "/cancel")
        assert (answer.status_code, answer.json()["cancelled"]) == (202, False)
    assert types(execute(server, job_id="c-3"))[-1] == "end"


@pytest.mark.parametrize("body", [{}, {"job_id": None}, {"job_id": 5}, []])
def test_cancel_without_an_id(server: Server, body: object) -> None:
    """/cancel without a job_id is INVALID_REQUEST."""
    assert error_of(server.post(body, "/cancel"), 400)["code"] == "INVALID_REQUEST"


def test_taken_id(slow_server: Server) -> None:
    """A second job with the id of one that is not over is a 409."""
    path = create(slow_server, job_id="same", **LONG)
    for other in ("/execute", "/v1/jobs"):
        error = error_of(slow_server.post({"job_id": "same", **GREEDY}, other), 409)
        assert error["code"] == "JOB_EXISTS"
    slow_server.post({"job_id": "same"}, "/cancel")
    assert types(read(slow_server, path))[-2:] == ["error", "[DONE]"]


@pytest.mark.parametrize("how", ["execute", "jobs"])
def test_reader_gone(slow_server: Server, how: str) -> None:
    """A reader that leaves frees the slot and the job's id."""
    before = count_ended(slow_server.url, "aborted")
    with http.stream(**begin(slow_server, how, job_id="g", **LONG)) as answer:
        lines = streamed(answer)
        next(lines)
    until(lambda: count_ended(slow_server.url, "aborted") > before)
    slow_server.wait_until(slots_processing=0, queue_depth=0)
    assert types(execute(slow_server, job_id="g"))[-1] == "end"


def test_reset_right_after_the_request(slow_server: Server) -> None:
    """Connections that are reset right after their request leave neither slot nor id taken."""
    host, port = slow_server.url.removeprefix("http://").split(":")
    body = json.dumps({"job_id": "reset", **LONG}).encode()
    head = b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    for _ in range(30):
        peer = socket.create_connection((host, int(port)))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.sendall(head + body)
        peer.close()
    slow_server.wait_until(slots_processing=0, queue_depth=0)
    assert types(execute(slow_server, job_id="reset"))[-1] == "end"
