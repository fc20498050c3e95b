"""A request that is still made ready is one of those that wait."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.requests.client import address, cancel, is_, look, once
from tests.support import http
from tests.support.programs.processes import Server, serving, until

BODY: dict[str, Any] = {
    "prompt": "Hi",
    "max_tokens": 2,
    "ignore_eos": True,
    "grammar": 'root ::= "a"+',
}


class Gated:
    """A worker that makes no form ready before it is let go."""

    def __init__(self, server: Server, there: Path) -> None:
        self.server, self._there = server, there

    def ask(self, name: str) -> tuple[threading.Thread, list[httpx.Response]]:
        """Ask in a thread; returns once a worker's thread makes it ready."""
        answers: list[httpx.Response] = []
        before = self._num_begun

        def post() -> None:
            ids = {"x-request-id": name}
            answers.append(http.post(f"{self.server.url}/v1/completions", json=BODY, headers=ids))

        thread = threading.Thread(target=post)
        thread.start()
        until(lambda: self._num_begun > before)
        return thread, answers

    def leave(self, name: str) -> None:
        """Ask, and leave once a worker's thread makes it ready."""
        before, body = self._num_begun, json.dumps(BODY)
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {name}\r\n"
        with socket.create_connection(address(self.server)) as client:
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            until(lambda: self._num_begun > before)

    @property
    def _num_begun(self) -> int:
        begun = self._there.with_suffix(".begun")
        return len(begun.read_text().splitlines()) if begun.exists() else 0

    def let_go(self) -> None:
        """Make ready what waits."""
        self._there.touch()

    def hold(self) -> None:
        """Make nothing ready any more."""
        self._there.unlink()


@pytest.fixture
def gated(tiny: Path, tmp_path: Path) -> Generator[Gated]:
    """One slot and no queue: a place that is not given back is noticed."""
    there = tmp_path / "there"
    options = ("-c", "512", "-np", "1", "-t", "1", "--queue-size", "0", "--drain-timeout", "600")
    env = {"FORMED": str(there)}
    with serving("--model", tiny, *options, env=env, step_seconds=0.01) as server:
        gated = Gated(server, there)
        try:
            yield gated
        finally:
            gated.let_go()


def test_listed_and_cancelled(gated: Gated) -> None:
    """It is seen, waits, and its place is free as soon as it is cancelled."""
    thread, answers = gated.ask("slow")
    seen = once(gated.server, "slow", "data", is_("waiting"))
    assert (seen["sequences"], seen["prompt_tokens"], seen["stream"]) == (0, 0, False)
    assert look(gated.server)["worker"]["waiting"] == 1
    assert gated.server.post({"prompt": "Hi", "max_tokens": 1}).status_code == 429
    assert cancel(gated.server, "slow").json()["requests"] == 1
    thread.join()
    (answer,) = answers
    assert (answer.status_code, answer.json()["error"]["code"]) == (499, "cancelled")
    ended = once(gated.server, "slow", "recent")
    assert (ended["status"], ended["outcome"], ended["code"]) == (499, "cancelled", "cancelled")
    assert look(gated.server)["data"] == []
    assert gated.server.post({"prompt": "Hi", "max_tokens": 1}).status_code == 200


def test_who_leaves_frees_the_place(gated: Gated) -> None:
    """At once, though its thread goes on."""
    gated.leave("gone")
    ended = once(gated.server, "gone", "recent")
    assert (ended["status"], ended["outcome"], ended["code"]) == (None, "left", None)
    assert gated.server.post({"prompt": "Hi", "max_tokens": 1}).status_code == 200


def test_accepted_before_the_drain(gated: Gated) -> None:
    """It is answered; what comes later is refused."""
    thread, answers = gated.ask("early")
    gated.server.process.send_signal(signal.SIGTERM)
    gated.server.wait_for("stopping")
    assert gated.server.post({"prompt": "Hi", "max_tokens": 1}).status_code == 503
    gated.let_go()
    thread.join()
    (answer,) = answers
    assert (answer.status_code, json.loads(answer.text)["choices"][0]["text"]) == (200, "aa")
    assert gated.server.wait() == 0


def test_given_up_at_the_end(gated: Gated) -> None:
    """A thread that works for nobody when the worker ends does it no harm."""
    gated.leave("gone")
    once(gated.server, "gone", "recent")
    gated.server.process.send_signal(signal.SIGTERM)
    assert gated.server.wait() == 0


def test_many_at_the_same_moment(gated: Gated) -> None:
    """While the place is taken all are refused, and no place is lost by that."""
    body = json.dumps({"prompt": "Hi", "max_tokens": 1}).encode()
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
    )
    asked = head + str(len(body)).encode() + b"\r\n\r\n" + body
    for _ in range(3):
        gated.server.wait_until(slots_processing=0)
        clients = [socket.create_connection(address(gated.server)) for _ in range(20)]
        thread, answers = gated.ask("first")
        for client in clients:
            client.sendall(asked)
        assert [client.makefile("rb").readline().split()[1] for client in clients] == [b"429"] * 20
        for client in clients:
            client.close()
        gated.let_go()
        thread.join()
        assert answers[0].status_code == 200
        gated.hold()
