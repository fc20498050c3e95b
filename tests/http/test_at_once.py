"""What the gate answers before there is a task: whole, and in its order."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from tests.requests.client import address
from tests.support import http
from tests.support.programs.processes import PATIENCE_S, Server, serving, until
from worker.http.connections import Connections
from worker.http.http import Listener
from worker.http.protocol import Protocol
from worker.http.replies import WholeAnswer
from worker.http.sockets import bind

PATH = "/v1/completions"
LONG = {"prompt": "a", "max_tokens": 1_500, "ignore_eos": True, "stream": True}
CLOSE = "Connection: close\r\n"


@pytest.fixture(scope="module")
def full(tiny: Path) -> Generator[Server]:
    """A worker whose only place is taken."""
    options = ("--model", tiny, "-c", "2048", "-t", "1", "-np", "1", "--queue-size", "0")
    with serving(*options, step_seconds=0.02) as server:
        with http.stream("POST", server.url + PATH, json=LONG) as held:
            lines = held.iter_lines()  # kept: closing it would close the connection
            next(lines)
            yield server
        server.wait_until(slots_processing=0)
        assert server.post({"prompt": "a", "max_tokens": 1}).status_code == 200


def asked(body: bytes, headers: str = "", method: str = "POST", path: str = PATH) -> bytes:
    headers = f"Host: localhost\r\n{headers}Content-Length: {len(body)}\r\n"
    head = f"{method} {path} HTTP/1.1\r\n{headers}\r\n"
    return head.encode() + body


def talk(server: Server, *parts: bytes) -> list[bytes]:
    """The answers of a connection, one behind the other, until it is closed."""
    with socket.create_connection(address(server), timeout=PATIENCE_S) as peer:
        for part in parts:
            peer.sendall(part)
        answer = b"".join(iter(partial(peer.recv, 65_536), b""))
    return [b"HTTP/1.1 " + each for each in answer.split(b"HTTP/1.1 ")[1:]]


def num_refused(server: Server) -> float:
    lines = http.get(server.url + "/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("worker_errors") and "queue_full" in line]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def test_a_connection_goes_on(full: Server) -> None:
    """After a refusal, whatever becomes of the body: what is read next is the next request."""
    body = json.dumps({"prompt": "a " * 100_000}).encode()
    ids = "X-Request-Id: mine\r\nX-Correlation-Id: ours\r\n"
    first, second, third = talk(
        full, asked(body, ids), asked(b"{}"), asked(b"", CLOSE, "GET", "/health")
    )
    head, _, told = first.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
    lines = head.lower().split(b"\r\n")
    for line in (b"retry-after: 1", b"x-request-id: mine", b"x-correlation-id: ours"):
        assert line in lines
    assert b"content-length: %d" % len(told) in lines
    assert not any(line.startswith(b"connection:") for line in lines)
    assert json.loads(told)["error"]["type"] == "rate_limit_error"
    assert json.loads(told)["request_id"] == "mine"
    assert second.startswith(b"HTTP/1.1 429 ")
    assert third.startswith(b"HTTP/1.1 200 OK\r\n")


def test_who_waits_to_send_a_body_need_not(full: Server) -> None:
    """Expect: 100-continue gets the refusal alone; each API has its own shape and header."""
    expects = CLOSE + "Expect: 100-continue\r\n"
    (answer,) = talk(full, asked(b"", expects, path="/v1/messages"))
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert b"\r\nrequest-id: req-" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["type"] == "error"


def test_head_has_no_body(full: Server) -> None:
    """The length is that of GET, for the page and for what is refused."""
    page = {"accept": "text/html"}
    whole = http.get(full.url + "/", headers=page)
    head = http.request("HEAD", full.url + "/", headers=page)
    assert head.headers["content-length"] == whole.headers["content-length"]
    (answer,) = talk(full, b"HEAD /health HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"\r\n\r\n")


def test_lines_of_very_many(full: Server) -> None:
    """The first have a line each, the others are counted; none is lost, nor in the metrics."""
    count, before = 200, num_refused(full)
    answers = talk(full, *[asked(b"{}")] * (count - 1), asked(b"{}", CLOSE))
    assert Counter(answer[9:12] for answer in answers) == {b"429": count}

    def told() -> tuple[int, int]:
        entries = [json.loads(line) for line in full.lines if line.startswith("{")]
        refused = [entry for entry in entries if entry.get("code") == "queue_full"]
        single = sum(entry["event"] == "request" for entry in refused)
        return single, sum(e["count"] for e in refused if e["event"] == "requests")

    assert num_refused(full) == before + count
    until(lambda: sum(told()) == before + count)
    assert all(told())


def test_a_reader_who_takes_nothing_is_not_written_to() -> None:
    """Many questions on one connection whose answers nobody reads do not fill the memory."""
    body = b"a" * 5_000_000
    made: list[int] = []

    def at_once(_scope: Any) -> WholeAnswer:
        made.append(1)
        return WholeAnswer(200, [(b"content-length", b"%d" % len(body))], body)

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def run() -> bytes:
        state = ServerState()
        config = Config(app, log_config=None, access_log=False, lifespan="off")
        config.load()
        listening = bind("127.0.0.1", 0)
        make = partial(Protocol, config, state, Connections(10, 60, 60), at_once=at_once)
        server = Listener(listening, Connections(10, 60, 60), make)
        reader, writer = await asyncio.open_connection(*listening.getsockname(), limit=2**16)
        with listening:
            ask = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
            writer.write((ask + b"\r\n") * 11 + ask + b"Connection: close\r\n\r\n")
            while not state.connections:
                await asyncio.sleep(0)
            while not next(iter(state.connections)).pipeline:  # type: ignore[union-attr]
                await asyncio.sleep(0)
            assert len(made) < 8
            answers = await reader.read()
        writer.close()
        server.close()
        return answers

    answers = asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    assert answers.count(b"HTTP/1.1 200") == len(made)
    assert answers.count(b"HTTP/1.1 299") == 12 - len(made) > 0
