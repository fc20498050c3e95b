"""How many connections there may be, who goes where there is no room, and what they leave."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import sys
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

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
from worker.limits import CONNECTIONS, PIPELINED
from worker.service.front import connections as module
from worker.service.front.connections import GUESTS, Connection, Connections

HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
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
        there.opened(someone)
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
    there.opened(busy)
    there.sends(busy)
    there.waits(busy)
    guests = [Someone(str(number), dropped) for number in range(GUESTS)]
    for guest in guests:
        assert there.make_room() == (True, True)
        guest.is_guest = True
        there.opened(guest)
        there.sends(guest)
        there.waits(guest)
    assert there.make_room() == (False, True)
    there.rests(guests[2])
    assert there.make_room() == (True, True)
    assert dropped == ["2"]
    for someone in (busy, *guests):
        there.lost(someone)
    assert there.count == 0
    assert there.has_room()


def test_descriptors_bound_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some stay free for the worker's own files; what is free is looked at again."""
    free = 20
    monkeypatch.setattr(module, "_free_files", lambda: free)
    there, dropped = Connections(1000, 1, 1), list[str]()
    people = [Someone("", dropped) for _ in range(20)]
    while there.has_room():
        there.opened(people[there.count])
        free -= 1
    assert 0 < there.count < 20
    free += 5  # a file was closed
    assert there.has_room()
    there.exhausted()
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
    command = ["sh", "-c", f'ulimit -n {FEW_FILES} && exec "$@"', "sh", sys.executable, "-m", "worker"]
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
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n{",
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
