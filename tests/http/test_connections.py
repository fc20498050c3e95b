"""How many connections there may be, who goes where there is no room, and what they leave."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

from benchmarks.connections.leavers import MOMENTS, leave_all
from tests.support import http
from tests.support.metrics import scrape
from tests.support.programs.processes import (
    PATIENCE_S,
    Server,
    WorkerProcess,
    became_ready,
    serving,
    until,
)
from worker.api.intake.body import Bodies
from worker.errors import QueueFullError
from worker.http import connections as module
from worker.http.connections import GUESTS, Connection, Connections
from worker.limits import BODIES, CONNECTIONS, PIPELINED

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
FEW_FILES = 30


class Someone(Connection):
    """A connection that is closed as soon as it is told to."""

    def __init__(self, name: str, dropped: list[str], *, is_stuck: bool = False) -> None:
        self.name, self.dropped, self.is_stuck = name, dropped, is_stuck

    def drop(self) -> bool:
        if not self.is_stuck:
            self.dropped.append(self.name)
        return not self.is_stuck


def test_the_oldest_idle_one_goes_first() -> None:
    """Then the body that is on its way for longest; never one that waits for its answer."""
    dropped: list[str] = []
    there = Connections(6, 1, 1)
    people = {name: Someone(name, dropped) for name in ("a", "b", "c", "d", "e")}
    people["stuck"] = Someone("stuck", dropped, is_stuck=True)
    for someone in people.values():
        assert there.has_room()
        there.on_open(someone)
    for name in ("a", "b", "c"):
        there.sends(people[name])
    for name in ("b", "c"):
        there.waits(people[name])
    there.rests(people["b"])
    assert not there.has_room()
    admissions = [there.make_room() for _ in range(4)]
    assert dropped == ["d", "e", "b", "a"]
    assert set(admissions) == {(True, False)}
    assert there.make_room() == (True, True)  # "c" is answered: only a guest may come


def test_guests_are_few() -> None:
    """Where all are being answered some more come in; who takes a guest's place is one."""
    dropped: list[str] = []
    there = Connections(1, 1, 1)
    busy = Someone("busy", dropped)
    there.on_open(busy)
    there.sends(busy)
    there.waits(busy)
    guests = [Someone(str(number), dropped) for number in range(GUESTS)]
    for guest in guests:
        assert there.make_room() == (True, True)
        guest.is_guest = True
        there.on_open(guest)
        there.sends(guest)
        there.waits(guest)
    assert there.make_room() == (False, True)
    there.rests(guests[2])
    assert there.make_room() == (True, True)
    assert dropped == ["2"]
    for someone in (busy, *guests):
        there.on_loss(someone)
    assert there.count == 0
    assert there.has_room()


def test_descriptors_bound_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some stay free for the worker's own files; what is free is looked at again."""
    free = 20
    monkeypatch.setattr(module, "_free_files", lambda: free)
    there, dropped = Connections(1000, 1, 1), list[str]()
    people = [Someone("", dropped) for _ in range(20)]
    while there.has_room():
        there.on_open(people[there.count])
        free -= 1
    assert 0 < there.count < 20
    free += 5  # a file was closed
    assert there.has_room()
    there.on_exhaustion()
    free = 0
    assert not there.has_room()
    assert dropped == [""]


def connected(server: Server, count: int, sent: bytes = b"") -> Iterable[socket.socket]:
    """So many connections, each of which has sent this."""
    host, port = server.url.removeprefix("http://").split(":")
    for _ in range(count):
        peer = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        with contextlib.suppress(ConnectionError):
            peer.sendall(sent)
        yield peer


def answered(peer: socket.socket) -> bytes:
    """All that comes until the connection is closed."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := peer.recv(65_536):
            found += data
    return found


@pytest.fixture(scope="module")
def few_files(tiny: Path) -> Generator[Server]:
    """A worker that may open 30 files."""
    words = ["serve", "--port", "0", "--log-format", "json", "--model", str(tiny), "-t", "1"]
    limited = ["sh", "-c", f'ulimit -n {FEW_FILES} && exec "$@"', "sh"]
    command = [*limited, sys.executable, "-m", "worker"]
    process = WorkerProcess(*words, command=command)
    try:
        assert became_ready(process)
        yield Server.over(process)
    finally:
        process.end()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        HEALTH,
        b"GET /hea",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{",
    ],
    ids=["silent", "answered", "head", "body"],
)
def test_health_under_few_files(few_files: Server, sent: bytes) -> None:
    """Forty connections that say nothing more do not hold up others."""
    with contextlib.ExitStack() as held:
        for peer in connected(few_files, 40, sent):
            held.enter_context(peer)
        assert few_files.health()["status"] == "ok"
        assert few_files.post({"prompt": "a", "max_tokens": 2}).status_code == 200
        assert len(list(Path(f"/proc/{few_files.pid}/fd").iterdir())) < FEW_FILES
    assert not any("no connection can be accepted" in line for line in few_files.lines)


@pytest.fixture(scope="module")
def crowded(tiny: Path) -> Generator[Server]:
    """A worker with two connections, whose steps take 20 ms."""
    options = ("--model", tiny, "-t", "1", "--max-connections", "2", "--receive-timeout", "0.5")
    with serving(*options, step_seconds=0.02) as server:
        yield server


def streaming(tokens: int) -> bytes:
    """A request for a stream of so many tokens."""
    body = {"prompt": "a", "max_tokens": tokens, "stream": True, "ignore_eos": True}
    data = json.dumps(body).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(data) + data


def test_the_oldest_idle_connection_makes_room(crowded: Server) -> None:
    """It is closed; those that came later are served."""
    first, second, third = connected(crowded, 3)
    with first, second, third:
        assert answered(first) == b""
        for peer in (second, third):
            peer.sendall(HEALTH.replace(b"Host", b"Connection: close\r\nHost"))
            assert b'"status":"ok"' in answered(peer)


def test_health_gets_in_where_all_are_being_answered(crowded: Server) -> None:
    """Others are told to come back, and those that were there are answered to their end."""
    first, second = connected(crowded, 2, streaming(100))
    with first, second:
        crowded.wait_until(slots_processing=2)
        health = http.get(crowded.url + "/health")
        assert (health.status_code, health.headers["connection"]) == (200, "close")
        refused = crowded.post({"prompt": "a"})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == CONNECTIONS.code
        assert "retry-after" in refused.headers
        for peer in (first, second):
            assert answered(peer).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert crowded.post({"prompt": "a", "max_tokens": 1}).status_code == 200


@pytest.mark.parametrize(
    ("has_asked", "sent"),
    [(False, b""), (False, b"GET /hea"), (True, b"GET /hea"), (True, b"\r\n")],
    ids=["nothing", "half", "half of the second", "an empty line"],
)
def test_a_head_must_arrive(crowded: Server, has_asked: bool, sent: bytes) -> None:
    """Of each request, not of the first only: the connection is closed."""
    (peer,) = connected(crowded, 1)
    with peer:
        if has_asked:
            peer.sendall(HEALTH)
            assert peer.recv(65_536).startswith(b"HTTP/1.1 200 ")
        peer.sendall(sent)
        answered(peer)


def test_a_body_must_arrive(crowded: Server) -> None:
    """A 408, and the connection is closed at last."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += b"Content-Length: 50\r\n\r\n{"
    (peer,) = connected(crowded, 1, head)
    with peer:
        assert answered(peer).startswith(b"HTTP/1.1 408 ")
    assert crowded.post({"prompt": "a", "max_tokens": 1}).status_code == 200


def test_requests_before_an_answer_are_few(server: Server) -> None:
    """Some may wait behind the first; a connection with more is closed."""
    count = PIPELINED.most + 1
    last = HEALTH.replace(b"Host", b"Connection: close\r\nHost")
    (peer,) = connected(server, 1, HEALTH * (count - 1) + last)
    with peer:
        assert answered(peer).count(b"HTTP/1.1 200") == count
    (peer,) = connected(server, 1, streaming(8).replace(b"close", b"keep-alive") + HEALTH * count)
    with peer:
        assert b"[DONE]" not in answered(peer)
    server.wait_until(slots_processing=0)


def test_who_leaves_with_two_requests_is_gone(slow_server: Server) -> None:
    """Also where the first of them is being answered, and uvicorn tells the last one only."""
    (peer,) = connected(slow_server, 1, streaming(1000).replace(b"close", b"keep-alive") + HEALTH)
    with peer:
        slow_server.wait_until(slots_processing=1)
    slow_server.wait_until(slots_processing=0)


def test_those_who_leave_leave_nothing(server: Server) -> None:
    """Before the head, in it, in the body, waiting, being read, being written, before the end."""

    def held() -> tuple[float, ...]:
        found = scrape(server.url)
        files = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        names = ("worker_requests_running", "worker_requests_waiting", "worker_kv_cellslive",
                 "worker_tasks")  # fmt: skip
        return (files, *(found[name] for name in names))

    host, port = server.url.removeprefix("http://").split(":")
    until(lambda: held()[1:4] == (0, 0, 0))
    before = held()
    left = leave_all(host, int(port), 300, seed=1, tokens=12, words=300)
    assert set(left) == set(MOMENTS)
    until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))
    assert server.post({"prompt": "a", "max_tokens": 2}).status_code == 200


def test_a_reader_that_stops_is_let_go(tiny: Path) -> None:
    """Its answer is more than the system takes by itself."""
    data = json.dumps({"content": "a b " * 150_000, "with_pieces": True}).encode()
    with serving("--model", tiny, "-t", "1", "--send-timeout", "0.3") as server:
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            host, port = server.url.removeprefix("http://").split(":")
            peer.connect((host, int(port)))
            head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
            peer.sendall(head + b"Content-Length: %d\r\n\r\n" % len(data) + data)
            server.wait_for("a reader stopped reading; its connection was closed")
        assert server.post({"prompt": "a", "max_tokens": 1}).status_code == 200


def test_bodies_are_bounded_together() -> None:
    """Beyond that a 429; what was decoded counts no more."""
    bodies = Bodies(30, 1 << 20, 1 << 20, bool)
    bodies.hold(BODIES.most << 20)
    with pytest.raises(QueueFullError):
        bodies.hold(1)
    bodies.release(1)
    bodies.hold(1)
    assert Bodies(30, 1 << 40, 1, bool).hold(1 << 40) is None  # one always may
