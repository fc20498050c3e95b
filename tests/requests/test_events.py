"""GET /v1/requests as events: for many at once, to the end of the worker and not longer."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.requests.client import PATH, address, cancel, is_, look, once
from tests.support import http
from tests.support.programs.processes import Server, serving, until

STREAM = {"prompt": "Hello", "max_tokens": 1_900, "ignore_eos": True, "stream": True}


def views(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    """What is told; keep it: a closed iterator closes the connection."""
    return (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))


@pytest.mark.parametrize(
    ("query", "headers"),
    [("?stream=true&interval=0.1", {}), ("?interval=0.1", {"accept": "text/event-stream"})],
)
def test_events(slow_server: Server, query: str, headers: dict[str, str]) -> None:
    """The same object again and again; a request is seen to come, to write and to end."""
    url = slow_server.url + PATH + query
    name = f"watched-{len(headers)}"
    with http.stream("GET", url, headers=headers) as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        told = views(answer)
        first = next(told)
        assert first.keys() == look(slow_server).keys()
        asked: dict[str, Any] = {"json": STREAM, "headers": {"x-request-id": name}}
        with http.stream("POST", slow_server.url + "/v1/completions", **asked):
            counts: list[int] = []
            while len(set(counts)) < 3:
                live = [r for r in next(told)["data"] if r["id"] == name]
                counts += [request["generated_tokens"] for request in live]
        assert counts == sorted(counts)
        while next(told)["recent"][0]["id"] != name:
            pass
    assert once(slow_server, name, "recent")["outcome"] == "left"


def test_a_speed(slow_server: Server) -> None:
    """Who looks again and again sees the speed of the last seconds."""
    asked: dict[str, Any] = {"json": STREAM, "headers": {"x-request-id": "speedy"}}
    with http.stream("POST", slow_server.url + "/v1/completions", **asked):
        seen = once(slow_server, "speedy", "data", lambda r: r["tokens_per_second"] is not None)
        cancel(slow_server, "speedy")
    assert 0 < seen["tokens_per_second"] <= 1 / 0.02


def test_viewers_share(slow_server: Server) -> None:
    """Who asks at about the same time gets the same view, made once."""
    url = f"{slow_server.url}{PATH}?stream=true&interval=0.5"
    with http.stream("GET", url) as one, http.stream("GET", url) as other:
        mine, theirs = views(one), views(other)
        times = [{next(told)["at"] for _ in range(5)} for told in (mine, theirs)]
    assert len(times[0] & times[1]) >= 2


@pytest.mark.parametrize("interval", ["0", "0.09", "61", "nan", "-1", "soon", ""])
def test_bad_intervals(server: Server, interval: str) -> None:
    """A sentence that names the field."""
    answer = http.get(f"{server.url}{PATH}?interval={interval}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "interval"


def test_to_the_end(tiny: Path) -> None:
    """A view that drains ends the events; whoever looks later is still answered, and can cancel.

    Who watches at long intervals, or reads nothing, holds nobody up.
    """
    options = ("-c", "2048", "-t", "1", "--drain-timeout", "600")
    with serving("--model", tiny, *options, step_seconds=0.02) as server:
        url = f"{server.url}{PATH}?stream=true"
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        asked: dict[str, Any] = {"json": STREAM, "headers": {"x-request-id": "last"}}
        with (
            http.stream("GET", url + "&interval=60") as watching,
            http.stream("POST", server.url + "/v1/completions", **asked) as running,
            socket.create_connection(address) as deaf,
        ):
            deaf.sendall(
                f"GET {PATH}?stream=1&interval=0.1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            )
            told = views(watching)
            assert next(told)["worker"]["state"] == "ready"
            once(server, "last", "data", is_("writing"))
            http.post(server.url + "/shutdown")
            assert [view["worker"]["state"] for view in told] == ["draining"]
            with http.stream("GET", url) as late:
                (view,) = views(late)
            assert [request["id"] for request in view["data"]] == ["last"]
            assert look(server)["worker"]["state"] == "draining"
            assert server.post({"prompt": "a"}).status_code == 503
            refused = server.wait_for("request")
            assert (refused["outcome"], refused["code"]) == ("refused", "draining")
            assert cancel(server, "last").status_code == 200
            assert '"code":"cancelled"' in running.read().decode()
            assert server.wait() == 0


def test_a_head_has_an_end(server: Server) -> None:
    """HEAD of the events is answered, and the connection serves the next request."""
    with socket.create_connection(address(server), timeout=60) as connection:
        connection.sendall(f"HEAD {PATH}?stream=true HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert b" 200 " in connection.recv(65_536)
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in connection.recv(65_536)


def test_who_leaves_is_forgotten(server: Server) -> None:
    """A viewer that closes its connection leaves nothing behind."""
    descriptors = Path(f"/proc/{server.pid}/fd")
    before = len(list(descriptors.iterdir()))
    with http.stream("GET", f"{server.url}{PATH}?stream=true&interval=0.1") as answer:
        next(views(answer))
    until(lambda: len(list(descriptors.iterdir())) <= before)
    look(server)
