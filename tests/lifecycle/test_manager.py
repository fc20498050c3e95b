"""The ready callback and heartbeats, against managers of all kinds."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support import http
from tests.support.programs import managers
from tests.support.programs.managers import Manager, manager, reply
from tests.support.programs.processes import (
    PATIENCE_S,
    Server,
    serving,
    side_by_side,
    starting,
    until,
)
from worker import __version__
from worker.lifecycle.manager import TRIES

NOBODY = ["http://127.0.0.1:1/", "http://no-such-host.invalid/"]
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


# Whoever waits for an answer of the manager waits for longer than any test does.
PATIENT = {"POST_SECONDS": "600"}


def slow(
    model: Path, *options: str, env: dict[str, str] | None = None
) -> contextlib.AbstractContextManager[Server]:
    """A server that gives fifty tokens a second at most."""
    return serving("--model", model, "-t", "1", *options, env=env, step_seconds=0.02)


def working(server: Server) -> None:
    """The server does what it is there for."""
    assert server.post({"prompt": "a", "max_tokens": 2}).status_code == 200
    assert server.health()["status"] == "ok"


def test_ready_callback(tiny: Path) -> None:
    """The manager is told all of the contract, once, after /health turned 200."""
    with (
        manager(managers.accepts_after_looking) as hive,
        serving(
            "--model", tiny, "-t", "1", "--worker-id", "worker-7",
            "--model-ref", "hf:a/b@c::file=d",
            "--callback-url", hive.url + "/v1/workers/ready?token=hush",
        ) as server,
    ):  # fmt: skip
        server.wait_for("the manager knows that the worker is ready")
        (body,) = hive.bodies
        resident = server.health()["memory_bytes"]
        working(server)
        assert hive.health == [200]
        assert hive.paths == ["/v1/workers/ready?token=hush"]
        assert "accept-encoding: identity" in hive.heads[0].lower()
    port = int(server.url.rsplit(":", 1)[1])
    assert body.pop("memory_bytes") == pytest.approx(resident, rel=0.2)
    assert body == {
        "worker_id": "worker-7",
        "url": f"http://127.0.0.1:{port}",
        "uri": f"http://127.0.0.1:{port}",
        "model_ref": "hf:a/b@c::file=d",
        "backend": "cpu",
        "device": 0,
        "vram_bytes": 0,
        "memory_architecture": "unified",
        "worker_type": "llm",
        "capabilities": ["text-gen"],
        "pid": server.process.pid,
        "port": port,
        "version": __version__,
    }
    assert len(hive.bodies) == 1
    assert "hush" not in "\n".join(server.lines)


def test_the_address_that_is_told(tiny: Path) -> None:
    """A worker on all addresses tells the one towards the manager, or what it is set to."""

    def check(case: tuple[list[str], dict[str, str], str]) -> None:
        options, env, host = case
        with (
            manager(managers.accepts) as hive,
            starting("--model", tiny, "-t", "1", "--callback-url", hive.url, *options, env=env),
        ):
            body = hive.wait_for(1)[0]
        assert body["url"] == f"http://{host}:{body['port']}"

    cases: list[tuple[list[str], dict[str, str], str]] = [
        (["--host", "0.0.0.0"], {}, "127.0.0.1"),
        (["--host", "0.0.0.0"], {"RBEE_WORKER_HOST": "mac.home.arpa"}, "mac.home.arpa"),
        (["--host", "::", "--public-host", "fe80::1"], {}, "[fe80::1]"),
    ]
    side_by_side(check, cases)


def refused(model: Path, kind: str) -> None:
    """After three refusals, a redirect among them, the worker leaves with 5 and a sentence."""
    with manager(managers.REFUSING[kind]) as hive:
        url = hive.url + "/ready"
        with starting("--model", model, "-t", "1", "--callback-url", url) as server:
            assert server.wait() == 5
    assert hive.paths == ["/ready"] * 3
    assert hive.sent < 16 << 20  # what the kernel's buffers take
    start = f"error: CALLBACK_REFUSED: The manager at {url} did not accept the ready callback: "
    assert server.lines[-1].startswith(start)
    assert server.lines[-1].endswith(" Check --callback-url.")


def nobody(model: Path, url: str) -> None:
    """A callback to nobody is exit 5."""
    with starting("--model", model, "-t", "1", "--callback-url", url) as server:
        assert server.wait() == 5
    assert server.lines[-1].startswith("error: CALLBACK_REFUSED: ")


def early_streams(model: Path) -> None:
    """A stream that runs when the callback is refused ends with an error event."""
    body = {"prompt": "a", "max_tokens": 1_900, "ignore_eos": True, "stream": True}
    with (
        manager(managers.REFUSING["500"]) as hive,
        slow(model, "-c", "2048", "--callback-url", hive.url) as server,
        http.stream("POST", server.url + "/v1/completions", json=body) as answer,
    ):
        lines = [line for line in answer.iter_lines() if line]
        assert server.wait() == 5
    assert lines[-1] == "data: [DONE]"
    assert '"error"' in lines[-2]


def test_refused_callback(tiny: Path) -> None:
    """A worker that the manager does not want leaves with 5; see `test_http_client.py` too."""
    checks: list[Callable[[], None]] = [
        partial(early_streams, tiny),
        *(partial(refused, tiny, kind) for kind in ("403", "redirect", "endless head")),
        *(partial(nobody, tiny, url) for url in NOBODY),
    ]
    side_by_side(lambda check: check(), checks)


def test_nasty_answer_to_the_callback(tiny: Path, server: Server) -> None:
    """What follows an accepting head is not read: it takes no memory and is not decompressed."""
    limit = server.health()["memory_bytes"] + (48 << 20)  # the bomb alone is 64 MiB

    def check(kind: str) -> None:
        with (
            manager(managers.NASTY[kind]) as hive,
            starting("--model", tiny, "-t", "1", "--callback-url", hive.url) as called,
        ):
            called.wait_for("the manager knows that the worker is ready")
            working(called)
            assert called.health()["memory_bytes"] < limit
            assert len(hive.bodies) == 1
        assert hive.sent < 16 << 20

    side_by_side(check, ["a gigabyte", "gzip bomb"])


def test_second_try_is_enough(tiny: Path) -> None:
    """A callback that was refused once is sent again."""

    def answer(self: Manager, peer: socket.socket) -> None:
        peer.sendall(managers.OK if len(self.bodies) > 1 else reply(503))

    with (
        manager(answer) as hive,
        serving("--model", tiny, "-t", "1", "--callback-url", hive.url) as server,
    ):
        server.wait_for("the manager knows that the worker is ready")
        assert len(hive.bodies) == 2
        working(server)


def test_no_callback(tiny: Path) -> None:
    """Nobody is called back in local mode, nor at the address that stands for a test."""

    def check(options: list[str]) -> None:
        with manager(managers.accepts) as hive:
            url = hive.url if options else "http://localhost:9999/ready"
            with serving(
                "--model", tiny, "-t", "1", "--callback-url", url, *options,
                "--heartbeat-url", hive.url + "/beat",
            ) as server:  # fmt: skip
                hive.wait_for(1)
                working(server)
            assert set(hive.paths) == {"/beat"}

    side_by_side(check, [["--local-mode"], []])


def test_stopping_while_the_callback_hangs(tiny: Path) -> None:
    """A manager that does not answer does not keep a worker from leaving."""
    with (
        manager(managers.hangs) as hive,
        slow(tiny, "--callback-url", hive.url, env=PATIENT) as server,
    ):
        hive.wait_for(1)
        server.process.terminate()
        assert server.wait() == 0


def test_refused_while_stopping(tiny: Path) -> None:
    """Asked to stop while the last try is under way, a worker drains and leaves with 0."""
    stopping = threading.Event()

    def answer(self: Manager, peer: socket.socket) -> None:
        if len(self.bodies) == TRIES:
            stopping.wait(PATIENCE_S)
        peer.sendall(reply(500))

    body = {"prompt": "a", "max_tokens": 50, "ignore_eos": True, "stream": True}
    options = ("-c", "2048", "--drain-timeout", "600")
    with (
        manager(answer) as hive,
        slow(tiny, *options, "--callback-url", hive.url, env=PATIENT) as server,
    ):
        hive.wait_for(TRIES)
        with http.stream("POST", server.url + "/v1/completions", json=body) as answer_:
            lines = answer_.iter_lines()
            next(lines)
            server.process.terminate()
            server.wait_for("stopping")
            stopping.set()
            server.wait_for("ready callback")  # the third refusal has arrived
            assert '"finish_reason":"length"' in [line for line in lines if line][-2]
        assert server.wait() == 0


def test_heartbeats(tiny: Path) -> None:
    """A heartbeat comes each interval and tells the worker's id, health and status."""
    with (
        manager(managers.accepts) as hive,
        serving(
            "--model", tiny, "-t", "1", "-np", "1", "-c", "2048", "--worker-id", "w", "-a", "m",
            "--queen-url", hive.url + "/", "--heartbeat-interval", "0.1", "--queue-size", "1",
            step_seconds=0.02,
        ) as server,
    ):  # fmt: skip
        first = hive.wait_for(3)[0]
        port = int(server.url.rsplit(":", 1)[1])
        assert RFC3339.fullmatch(first.pop("timestamp"))
        assert 0 <= first.pop("engine_silence_seconds") < PATIENCE_S
        info = {
            "id": "w", "model_id": "m", "device": "CPU-0", "port": port,
            "implementation": "gguf-worker", "version": __version__,
        }  # fmt: skip
        assert first == {
            "worker_id": "w", "health_status": "healthy", "worker": {**info, "status": "ready"},
        }  # fmt: skip
        body = {"prompt": ["a", "b"], "max_tokens": 1_900, "ignore_eos": True, "stream": True}
        with http.stream("POST", server.url + "/v1/completions", json=body):
            until(lambda: hive.bodies[-1]["worker"]["status"] == "busy")
            until(lambda: hive.bodies[-1]["health_status"] == "degraded")  # the queue is full
        until(lambda: hive.bodies[-1]["worker"]["status"] == "ready")
        assert hive.bodies[-1]["health_status"] == "healthy"
        server.process.terminate()
        assert server.wait() == 0
    assert set(hive.paths) == {"/v1/worker-heartbeat"}


def test_a_draining_worker_says_so(tiny: Path) -> None:
    """A worker that begins to drain tells the manager at once, not at the next interval."""
    body = {"prompt": "a", "max_tokens": 1_900, "ignore_eos": True, "stream": True}
    with (
        manager(managers.accepts) as hive,
        slow(tiny, "-c", "2048", "--heartbeat-url", hive.url, "--drain-timeout", "600") as server,
        http.stream("POST", server.url + "/v1/completions", json=body) as answer,
    ):
        lines = answer.iter_lines()  # kept: closing it would close the connection
        next(lines)
        hive.wait_for(1)
        server.process.terminate()
        until(lambda: hive.bodies[-1]["worker"]["status"] == "stopping")
        server.process.terminate()
        assert server.wait() == 0


def test_heartbeats_are_never_fatal(tiny: Path) -> None:
    """Whatever becomes of heartbeats, requests are served and the worker leaves with 0."""
    kinds = [*managers.REFUSING.values(), *managers.NASTY.values(), managers.hangs]

    def answer(self: Manager, peer: socket.socket) -> None:
        kinds[min(len(self.bodies), len(kinds)) - 1](self, peer)

    options = ("--heartbeat-interval", "0.1")
    with (
        manager(answer) as hive,
        slow(tiny, *options, "--heartbeat-url", hive.url, env=PATIENT) as server,
    ):
        server.wait_for("heartbeats do not arrive")  # said once
        server.wait_for("heartbeats arrive again")
        before = server.health()["memory_bytes"]
        hive.wait_for(len(kinds))
        working(server)
        assert server.health()["memory_bytes"] < before + (32 << 20)
        server.process.terminate()
        assert server.wait() == 0
        assert set(hive.paths) == {"/"}
    assert sum("heartbeats do not arrive" in line for line in server.lines) == 1


def test_heartbeats_to_nobody(tiny: Path) -> None:
    """Heartbeats to a manager that is not there change nothing."""

    def check(url: str) -> None:
        with starting("--model", tiny, "-t", "1", "--heartbeat-url", url) as server:
            server.wait_for("heartbeats do not arrive")
            working(server)
            server.process.terminate()
            assert server.wait() == 0

    side_by_side(check, NOBODY)
