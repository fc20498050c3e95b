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
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.support import http
from tests.support.processes import Server, WorkerProcess, serving, side_by_side, starting, until

PROMPT = [5, 9, 17, 33] * 450
STREAM = {"prompt": "Hello", "max_tokens": 1_900, "ignore_eos": True, "stream": True}
SMALL_STEPS = ("-b", "16", "-ub", "16", "-np", "2", "-t", "1", "-c", "2048")

Tell = Callable[[Server], object]
WAYS: dict[str, Tell] = {
    "SIGTERM": lambda server: server.process.send_signal(signal.SIGTERM),
    "SIGINT": lambda server: server.process.send_signal(signal.SIGINT),
    "SIGHUP": lambda server: server.process.send_signal(signal.SIGHUP),
    "shutdown": lambda server: http.post(server.url + "/shutdown").raise_for_status(),
}
SOME = [name for name in WAYS if name != "SIGHUP"]


@contextlib.contextmanager
def streaming(server: Server) -> Generator[Iterator[str]]:
    """The lines of a stream that has begun and would go on for long."""
    url = server.url + "/v1/completions"
    with http.stream("POST", url, json=STREAM) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        yield lines


class Post(threading.Thread):
    """A request without streaming, under way."""

    def __init__(self, server: Server, body: object, path: str = "/v1/completions") -> None:
        super().__init__(daemon=True)
        self._server, self._body, self._path = server, body, path
        self.answer: httpx.Response | None = None
        self.start()

    def run(self) -> None:
        with contextlib.suppress(httpx.HTTPError):
            self.answer = self._server.post(self._body, self._path)

    def result(self) -> tuple[int, dict[str, Any]]:
        """Status and body; fails when the connection was cut."""
        self.join(30)
        assert self.answer is not None, "no answer"
        return self.answer.status_code, self.answer.json()


def is_free(url: str) -> bool:
    """Whether another worker could listen there."""
    host, port = url.removeprefix("http://").split(":")
    with contextlib.suppress(OSError):
        socket.create_server((host, int(port))).close()
        return True
    return False


def left_with(server: Server, code: int) -> None:
    """The process has ended so, without a word of trouble, and its port is free."""
    assert server.wait() == code, server.lines
    assert is_free(server.url)
    assert not [line for line in server.lines if "Traceback" in line or "error:" in line]


def test_told_again_at_the_end(tiny: Path) -> None:
    """A signal that comes when all is stopped but the process changes nothing."""

    def check(number: int) -> None:
        with serving("--model", tiny, "-t", "1") as server:
            WAYS["shutdown"](server)
            while server.wait_for("state")["new"] != "stopped":
                pass
            threading.Event().wait(number / 100)
            with contextlib.suppress(ProcessLookupError):
                server.process.send_signal(signal.SIGTERM)
            left_with(server, 0)

    side_by_side(check, range(16))


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


def test_while_loading(slow_model: Path) -> None:
    """A load is given up."""

    def check(way: str) -> None:
        with starting("--model", slow_model, "-t", "1") as server:
            WAYS[way](server)
            left_with(server, 0)
        events = [json.loads(line)["event"] for line in server.lines]
        assert "ready" not in events

    side_by_side(check, WAYS)


def test_when_idle(tiny: Path) -> None:
    """Nothing to wait for."""

    def check(way: str) -> None:
        with serving("--model", tiny, "-t", "1", "--drain-timeout", "600") as server:
            WAYS[way](server)
            left_with(server, 0)

    side_by_side(check, WAYS)


def test_while_reading_a_prompt(slow_model: Path) -> None:
    """A request whose prompt is being read is refused like one that came too late."""

    def check(way: str) -> None:
        with serving("--model", slow_model, "--drain-timeout", "0.1", *SMALL_STEPS) as server:
            request = Post(server, {"prompt": PROMPT, "max_tokens": 1})
            server.wait_until(slots_processing=1)
            WAYS[way](server)
            status, body = request.result()
            assert status == 503, body
            assert body["error"]["code"] == "draining"
            left_with(server, 0)

    side_by_side(check, SOME)


def test_while_streaming(slow_model: Path) -> None:
    """A stream that outlives the drain time ends with one error event."""

    def check(way: str) -> None:
        options = ("--drain-timeout", "0.1", *SMALL_STEPS)
        with serving("--model", slow_model, *options) as server, streaming(server) as lines:
            WAYS[way](server)
            rest = [line for line in lines if line]
            left_with(server, 0)
        assert rest[-1] == "data: [DONE]"
        assert '"error"' in rest[-2]
        assert sum('"error"' in line or '"finish_reason":"' in line for line in rest) == 1

    side_by_side(check, SOME)


def test_while_draining(slow_model: Path) -> None:
    """A second signal leaves at once; a first one after POST /shutdown lets the drain go on."""
    options = ("--drain-timeout", "600", *SMALL_STEPS)

    def check(ways: tuple[str, str]) -> None:
        first, way = ways
        with serving("--model", slow_model, *options) as server, streaming(server) as lines:
            WAYS[first](server)
            server.wait_for("stopping")
            WAYS[way](server)
            if first == "shutdown":
                server.wait_for("signal")
                assert next(line for line in lines if line).startswith("data: ")
                WAYS[way](server)
            left_with(server, 0)

    side_by_side(check, itertools.product(["SIGTERM", "shutdown"], ["SIGTERM", "SIGINT"]))


def shutdown_again(slow_model: Path) -> None:
    """POST /shutdown while draining is accepted and changes nothing."""
    options = ("--drain-timeout", "0.5", *SMALL_STEPS)
    with serving("--model", slow_model, *options) as server, streaming(server) as lines:
        WAYS["SIGTERM"](server)
        server.wait_for("stopping")
        WAYS["shutdown"](server)
        assert '"error"' in [line for line in lines if line][-2]
        left_with(server, 0)


def prompt_that_takes_long(tiny: Path) -> None:
    """A text that is being split into tokens, for half a minute, is not waited for."""
    with serving("--model", tiny, "-t", "1") as server:
        tasks = Path(f"/proc/{server.pid}/task")
        before = len(list(tasks.glob("*")))
        request = Post(server, {"content": "😀" * 500_000}, "/tokenize")
        until(lambda: not before or len(list(tasks.glob("*"))) > before)
        server.process.terminate()
        assert server.wait(10) == 0
        left_with(server, 0)
        assert request.result()[0] == 503


def requests_that_finish(slow_model: Path) -> None:
    """A running request that fits the drain time is finished; new work is refused with 503."""
    body = {**STREAM, "max_tokens": 40}
    with (
        serving("--model", slow_model, "--drain-timeout", "600", *SMALL_STEPS) as server,
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


def reader_that_stopped_reading(slow_model: Path) -> None:
    """A connection that takes nothing does not keep a worker from leaving."""
    with serving("--model", slow_model, "--drain-timeout", "0.1", *SMALL_STEPS) as server:
        host, port = server.url.removeprefix("http://").split(":")
        body = json.dumps({**STREAM, "logprobs": 5}).encode()
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            peer.connect((host, int(port)))
            peer.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
                % len(body) + body
            )  # fmt: skip
            server.wait_until(slots_processing=1)
            server.process.terminate()
            assert server.wait(5) == 0


def test_draining(slow_model: Path, tiny: Path) -> None:
    """What a drain does for those who are there."""
    checks = [shutdown_again, requests_that_finish, reader_that_stopped_reading]
    cases: list[Callable[[], None]] = [partial(check, slow_model) for check in checks]
    side_by_side(lambda check: check(), [*cases, partial(prompt_that_takes_long, tiny)])


ROUNDS = 200 if os.environ.get("EXHAUSTIVE") else 8


def open_files() -> set[str]:
    """The numbers of this process's open files, where the system tells; the listing's own too."""
    folder = Path("/proc/self/fd")
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_many_starts_and_kills(slow_model: Path, tiny: Path) -> None:
    """Workers that are killed or stopped at any moment leave no process, descriptor or port."""
    before = open_files()

    def check(number: int) -> None:
        with starting("--model", slow_model if number % 2 else tiny, "-t", "1") as server:
            if number % 4 > 1:
                server.wait_until_ready()
            if number % 8 > 3:
                server.process.kill()
                assert server.wait() == -signal.SIGKILL
            else:
                server.process.terminate()
                assert server.wait() == 0
            until(lambda: is_free(server.url), seconds=2)

    side_by_side(check, range(ROUNDS))
    assert open_files() <= before


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
