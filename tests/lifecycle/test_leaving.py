"""Being told to leave: in every state, by every way, and what is left behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tests.lifecycle.leaving import PROMPT, SMALL_STEPS, STREAM, Post, left_with, streaming
from tests.support import http
from tests.support.programs.processes import (
    Server,
    WorkerProcess,
    serving,
    side_by_side,
    starting,
    until,
)

Tell = Callable[[Server], object]
WAYS: dict[str, Tell] = {
    "SIGTERM": lambda server: server.process.send_signal(signal.SIGTERM),
    "SIGINT": lambda server: server.process.send_signal(signal.SIGINT),
    "SIGHUP": lambda server: server.process.send_signal(signal.SIGHUP),
    "shutdown": lambda server: http.post(server.url + "/shutdown").raise_for_status(),
}
SOME = [name for name in WAYS if name != "SIGHUP"]


def slow(model: Path, *options: str) -> contextlib.AbstractContextManager[Server]:
    """A server that gives twenty tokens a second at most."""
    return serving("--model", model, *options, step_seconds=0.05)


def test_told_again_at_the_end(tiny: Path) -> None:
    """A signal that comes when all is stopped but the process changes nothing."""

    def check(number: int) -> None:
        with serving("--model", tiny, "-t", "1") as server:
            WAYS["shutdown"](server)
            while server.wait_for("state")["new"] != "stopped":
                pass
            threading.Event().wait(number / 30)
            with contextlib.suppress(ProcessLookupError):
                server.process.send_signal(signal.SIGTERM)
            left_with(server, 0)

    side_by_side(check, range(6))


def test_hangup_that_is_ignored(tiny: Path) -> None:
    """Started by nohup, a worker outlives its terminal."""
    command = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-m", "worker"]
    options = ("serve", "--model", str(tiny), "-t", "1", "--port", "0", "--log-format", "json")
    process = WorkerProcess(*options, command=command)
    try:
        url = process.wait_for("listening")["url"]
        process.wait_for("ready")
        process.process.send_signal(signal.SIGHUP)
        assert http.get(url + "/health").json()["status"] == "ok"
        process.process.terminate()
        assert process.wait() == 0
        assert not any("SIGHUP" in line for line in process.lines)
    finally:
        process.end()


def test_while_loading(tiny: Path, tmp_path: Path) -> None:
    """A worker that is told to leave while it loads gives the load up."""
    env = {"LOADED": str(tmp_path / "never")}

    def check(way: str) -> None:
        with starting("--model", tiny, "-t", "1", env=env, step_seconds=0.02) as server:
            WAYS[way](server)
            left_with(server, 0)
        events = [json.loads(line)["event"] for line in server.lines]
        assert "ready" not in events

    side_by_side(check, WAYS)


def test_when_idle(tiny: Path) -> None:
    """An idle worker has nothing to wait for."""

    def check(way: str) -> None:
        with serving("--model", tiny, "-t", "1", "--drain-timeout", "600") as server:
            WAYS[way](server)
            left_with(server, 0)

    side_by_side(check, WAYS)


def test_while_reading_a_prompt(tiny: Path) -> None:
    """A request whose prompt is being read is refused like one that came too late."""

    options = ("--drain-timeout", "0.1", *SMALL_STEPS)

    def check(way: str) -> None:
        with serving("--model", tiny, *options, step_seconds=0.1) as server:
            request = Post(server, {"prompt": PROMPT, "max_tokens": 1})
            server.wait_until(slots_processing=1)
            WAYS[way](server)
            status, body = request.result()
            assert status == 503, body
            assert body["error"]["code"] == "draining"
            left_with(server, 0)

    side_by_side(check, SOME)


def test_while_streaming(tiny: Path) -> None:
    """A stream that outlives the drain time ends with one error event."""
    options = ("--drain-timeout", "0.1", *SMALL_STEPS)

    def check(way: str) -> None:
        with slow(tiny, *options) as server, streaming(server) as lines:
            WAYS[way](server)
            rest = [line for line in lines if line]
            left_with(server, 0)
        assert rest[-1] == "data: [DONE]"
        assert '"error"' in rest[-2]
        assert sum('"error"' in line or '"finish_reason":"' in line for line in rest) == 1

    side_by_side(check, SOME)


def test_while_draining(tiny: Path) -> None:
    """A second signal leaves at once; a first one after POST /shutdown lets the drain go on."""
    options = ("--drain-timeout", "600", *SMALL_STEPS)

    def check(ways: tuple[str, str]) -> None:
        first, way = ways
        with slow(tiny, *options) as server, streaming(server) as lines:
            WAYS[first](server)
            server.wait_for("stopping")
            WAYS[way](server)
            if first == "shutdown":
                server.wait_for("signal")
                assert next(line for line in lines if line).startswith("data: ")
                WAYS[way](server)
            left_with(server, 0)

    side_by_side(check, itertools.product(["SIGTERM", "shutdown"], ["SIGTERM", "SIGINT"]))


def shutdown_again(tiny: Path) -> None:
    """POST /shutdown while draining is accepted and changes nothing."""
    options = ("--drain-timeout", "2", *SMALL_STEPS)
    with slow(tiny, *options) as server, streaming(server) as lines:
        WAYS["SIGTERM"](server)
        server.wait_for("stopping")
        WAYS["shutdown"](server)
        assert '"error"' in [line for line in lines if line][-2]
        left_with(server, 0)


def prompt_that_takes_long(tiny: Path) -> None:
    """A text that is being split into tokens is not waited for: its request is told so, unless
    it was done by then."""
    with serving("--model", tiny, "-t", "1") as server:
        begun = cpu_seconds(server.pid)
        request = Post(server, {"content": "😀" * 500_000}, "/tokenize")
        until(lambda: not begun or cpu_seconds(server.pid) > begun + 0.2)
        server.process.terminate()
        assert server.wait() == 0
        left_with(server, 0)
        assert request.result()[0] in (200, 503)


def cpu_seconds(pid: int) -> float:
    """CPU time that the process has used; 0 where the system does not tell."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def requests_that_finish(tiny: Path) -> None:
    """A running request that fits the drain time is finished; new work is refused with 503."""
    body = {**STREAM, "max_tokens": 40}
    with (
        slow(tiny, "--drain-timeout", "600", *SMALL_STEPS) as server,
        http.stream("POST", server.url + "/v1/completions", json=body) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        server.process.terminate()
        server.wait_for("stopping")
        refused = http.get(server.url + "/health")
        rest = [line for line in lines if line]
        left_with(server, 0)
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    assert '"finish_reason":"length"' in rest[-2]


def reader_that_stopped_reading(tiny: Path) -> None:
    """A connection that takes nothing does not keep a worker from leaving."""
    with slow(tiny, "--drain-timeout", "0.1", *SMALL_STEPS) as server:
        host, port = server.url.removeprefix("http://").split(":")
        body = json.dumps({**STREAM, "logprobs": 5}).encode()
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            peer.connect((host, int(port)))
            peer.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                % len(body) + body
            )  # fmt: skip
            server.wait_until(slots_processing=1)
            server.process.terminate()
            assert server.wait() == 0


def test_draining(tiny: Path) -> None:
    """A drain lets finish what can, and waits for nothing else."""
    checks = [
        shutdown_again,
        requests_that_finish,
        reader_that_stopped_reading,
        prompt_that_takes_long,
    ]
    side_by_side(lambda check: check(tiny), checks)


def test_two_for_one_port(tiny: Path) -> None:
    """Of two workers that are started for one port at once, one serves and the other exits 3."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    with contextlib.ExitStack() as stack:
        racing = [
            WorkerProcess("--port", port, "--model", str(tiny), "--log-format", "json")
            for _ in range(2)
        ]
        for server in racing:
            stack.callback(server.end)
        until(lambda: any(server.process.poll() is not None for server in racing))
        loser = next(server for server in racing if server.process.poll() is not None)
        (winner,) = (server for server in racing if server is not loser)
        assert loser.wait() == 3
        assert loser.lines[-1].startswith(
            f"error: CANNOT_BIND: Cannot listen on 127.0.0.1:{port}: Address already in use. "
        )
        winner.wait_for("ready")
        assert http.get(f"http://127.0.0.1:{port}/health").json()["status"] == "ok"
