"""The process from outside: bound first, ready late, leaving clean, failing with a sentence."""

from __future__ import annotations

import contextlib
import errno
import json
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.support import http
from tests.support.metrics import count_ended
from tests.support.models import ggufs
from tests.support.programs.processes import (
    PATIENCE_S,
    Server,
    WorkerProcess,
    ended,
    serving,
    side_by_side,
    starting,
    until,
)
from worker.cli import version
from worker.cli.main import main
from worker.demo import MODEL_PATH
from worker.errors import BindError
from worker.http.sockets import bind

LONG = {"prompt": "Hello", "max_tokens": 1_500, "ignore_eos": True}


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_bound_before_loaded(tiny: Path, tmp_path: Path) -> None:
    """Every path answers 503 in llama-server's words while the model loads, then 200."""
    loaded = tmp_path / "loaded"
    env = {"LOADED": str(loaded)}
    with starting("--model", tiny, "-t", "1", env=env, step_seconds=0.01) as server:
        for path in ("/health", "/v1/models", "/nope"):
            answer = http.get(server.url + path)
            assert answer.status_code == 503
            assert answer.json()["error"] | {"param": None} == {
                "code": 503,
                "message": "Loading model",
                "type": "unavailable_error",
                "param": None,
            }
        loaded.touch()
        server.wait_until_ready()
        assert server.health()["status"] == "ok"


def test_client_gone_while_streaming(slow_server: Server) -> None:
    """A client that leaves mid-stream frees its slot."""
    before = count_ended(slow_server.url, "aborted")
    url = slow_server.url + "/v1/completions"
    with http.stream("POST", url, json={**LONG, "stream": True}) as answer:
        next(answer.iter_lines())
    until(lambda: count_ended(slow_server.url, "aborted") > before)
    slow_server.wait_until(slots_processing=0, queue_depth=0)


def test_client_gone_without_streaming(slow_server: Server) -> None:
    """A client that hangs up before its whole answer frees its slot."""
    before = count_ended(slow_server.url, "aborted")
    address = slow_server.url.removeprefix("http://")
    with contextlib.closing(HTTPConnection(address)) as connection:
        connection.request("POST", "/v1/completions", json.dumps(LONG))
        slow_server.wait_until(slots_processing=1)
    until(lambda: count_ended(slow_server.url, "aborted") > before)
    slow_server.wait_until(slots_processing=0, queue_depth=0)


def test_reset_right_after_the_request(slow_server: Server) -> None:
    """Connections that are reset right after their request leak no slot."""
    host, port = slow_server.url.removeprefix("http://").split(":")
    body = b'{"prompt": "a", "max_tokens": 1500, "ignore_eos": true, "stream": true}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    for _ in range(100):
        peer = socket.create_connection((host, int(port)))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.sendall(head + body)
        peer.close()
    slow_server.wait_until(slots_processing=0, queue_depth=0)


def test_queue_full(tiny: Path) -> None:
    """More requests than may run and wait get 429 with Retry-After; the others are served."""
    held = {**LONG, "prompt": ["a", "b"], "stream": True}
    options = ("--model", tiny, "-c", "2048", "-t", "1", "-np", "1", "--queue-size", "1")
    with serving(*options, step_seconds=0.02) as server:
        with http.stream("POST", server.url + "/v1/completions", json=held) as first:
            lines = first.iter_lines()  # kept: closing it would close the connection
            next(lines)
            answer = server.post({"prompt": "a", "max_tokens": 2})
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["type"] == "rate_limit_error"
        server.wait_until(slots_processing=0)
        assert server.post({"prompt": "a", "max_tokens": 2}).status_code == 200


def test_port_in_use(server: Server, tiny: Path) -> None:
    """A taken port is exit 3 and one sentence with the next step."""
    port = server.url.rsplit(":", 1)[1]
    done = ended("serve", "--model", tiny, "--port", port)
    assert done.returncode == 3
    assert last_line(done.stderr).startswith("error: CANNOT_BIND: Cannot listen on 127.0.0.1:")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("code", "option"), [(errno.EADDRINUSE, "--port"), (errno.EADDRNOTAVAIL, "--host")]
)
def test_the_next_step_fits(code: int, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that is taken asks for another port, an address of another machine for another host.

    The system's answer is made up: which addresses a machine lacks differs.
    """

    def refuse(*_: object) -> None:
        raise OSError(code, "made up")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(BindError) as refused:
        bind("127.0.0.1", 0)
    assert option in (refused.value.hint or "")


# Refused by the parser.
WRONG: list[tuple[list[str], str]] = [
    (["serve", "--port", "70000"], "--port"),
    (["serve", "--no-such-flag"], "--no-such-flag"),
    (["frobnicate"], "frobnicate"),
    (["generate", "a", "-n", "0"], "-n must be from 1"),
    (["generate", "a", "--seed", "abc"], "--seed must be a whole number, not 'abc'"),
    (["generate", "a", "--temperature", "nan"], "--temperature must be a number, not 'nan'"),
    (["serve", "a.gguf", "b.gguf"], "too many"),
    (["serve", "a.gguf", "--model", "b.gguf"], "Two models are named"),
    (["srve", "a.gguf"], "Did you mean serve?"),
    (["serve", "--prot", "1"], "Did you mean --port?"),
    ([], "No command is named"),
]
# Refused by who uses them.
WRONG_LATER: list[tuple[list[str], str]] = [
    (["generate", "a", "--temperature", "-1"], "temperature"),
    (["generate", "\udce9t"], "not UTF-8 at byte 0"),
    (["generate", "a", "--catalog", "no-such.toml"], "no-such.toml cannot be read"),
    (["pull", ""], "name is empty"),
    (["generate", "a", "--model", "file:"], "name is empty"),
    (["quantize", "a.gguf", "", "Q4_0"], "DST is empty"),
    (["quantize", str(MODEL_PATH), "x.gguf", "Q4_KM"], "Did you mean Q4_K_M?"),
    (["serve", "--host", "a" * 80], "--host"),
    (["serve", "--port", "0", "-fa", "off", "-ctv", "q4_0"], "--cache-type-v"),
    (["serve", "--port", "0", "--device", "Nowhere9"], "Nowhere9"),
]


@pytest.mark.parametrize(("arguments", "part"), WRONG)
def test_wrong_words(arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Words that mean nothing are exit 2, one sentence that names what is wrong."""
    assert main(arguments) == 2
    line = last_line(capsys.readouterr().err)
    assert line.startswith("error: USAGE: ")
    assert part in line


def test_wrong_usage() -> None:
    """Wrong options are exit 2, one sentence that names what is wrong."""

    def check(case: tuple[list[str], str]) -> None:
        arguments, part = case
        done = ended(*arguments)
        assert done.returncode == 2, done.stderr
        line = last_line(done.stderr)
        assert line.startswith("error: USAGE: ")
        assert part in line
        assert "Traceback" not in done.stderr

    side_by_side(check, [WRONG[0], *WRONG_LATER])


def test_wrong_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unusable variable is exit 2 and named."""
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "many")
    done = ended("serve", "--port", "0")
    assert done.returncode == 2
    assert "LLAMA_ARG_CTX_SIZE" in last_line(done.stderr)


def test_unforeseen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a command fails with, the last line is a sentence."""

    def fail(_: object) -> int:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(version, "run", fail)
    assert main(["version"]) == 1
    line = last_line(capsys.readouterr().err)
    assert line == "error: INTERNAL: This should not happen: ZeroDivisionError('oh')."


BAD_FILES = {
    "empty": b"",
    "foreign": b"<!DOCTYPE html><html></html>",
    "truncated": None,
    "zip": b"PK\3\4" + b"\0" * 100,
}


def test_bad_model_file(tiny: Path, tmp_path: Path) -> None:
    """A file that is no model is exit 1 and one sentence that says what it is."""

    def check(kind: str) -> None:
        path = tmp_path / f"{kind}.gguf"
        if kind == "truncated":
            path.write_bytes(tiny.read_bytes()[:-1000])
        elif kind == "directory":
            path.mkdir()
        elif kind == "vocabulary":
            model = ggufs.llama_gguf()
            model.tensors.clear()
            path.write_bytes(model.encode())
        elif kind != "missing":
            path.write_bytes(BAD_FILES[kind] or b"")
        done = ended("serve", "--model", path, "--port", "0")
        assert done.returncode == 1, done.stderr
        line = last_line(done.stderr)
        assert line.startswith("error: ")
        assert line.endswith((".", "?"))
        assert "Traceback" not in done.stderr

    side_by_side(check, [*BAD_FILES, "missing", "directory", "vocabulary"])


def test_too_large_for_the_machine(tiny: Path) -> None:
    """A context that cannot fit is exit 4 and says what would."""
    done = ended("serve", "--model", tiny, "--port", "0", "-c", "2000000000")
    assert done.returncode == 4, done.stderr
    assert last_line(done.stderr).startswith("error: DOES_NOT_FIT: ")


def test_log_is_json(tiny: Path) -> None:
    """Each line of --log-format json is one JSON object, whatever clients send."""
    with serving("--model", tiny, "-t", "1") as server:
        server.post({"prompt": "a", "max_tokens": 2})
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as peer:
            peer.sendall(b"POST /cancel HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
        for words in (b"\x16\x03\x01\r\n\r\n", b"GET / HTTP/1.1\r\nA B: x\r\n\r\n"):
            with socket.create_connection((host, int(port))) as peer:
                peer.sendall(words)
                assert peer.recv(65536).startswith(b"HTTP/1.1 400 ")
        server.process.terminate()
        server.wait()
        events = [json.loads(line)["event"] for line in server.lines]
    assert events[0] == "listening"
    assert "ready" in events
    assert "request failed" not in events


def test_ids_pass_through(server: Server) -> None:
    """x-request-id and X-Correlation-Id come back; an id is made where none was sent."""
    answer = http.get(
        server.url + "/health", headers={"x-request-id": "r1", "x-correlation-id": "c1"}
    )
    assert (answer.headers["x-request-id"], answer.headers["x-correlation-id"]) == ("r1", "c1")
    assert http.get(server.url + "/health").headers["x-request-id"].startswith("req-")


def test_signal_at_the_very_start(tiny: Path) -> None:
    """Being told to stop before the socket is bound is no failure either."""
    code = (
        "import os, signal, socket\n"
        "bind = socket.socket.bind\n"
        "def told_to_stop(self, address):\n"
        "    print('now', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    bind(self, address)\n"
        "socket.socket.bind = told_to_stop\n"
        "from worker.cli.main import run\n"
        "run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", "--model", tiny, "--port", "0"],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "now\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_among_the_imports(number: signal.Signals) -> None:
    """Being told to stop while it imports its modules is no failure, and nothing is said."""

    def check(word: str) -> None:
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "worker", word, "--port", "0"],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        try:
            next(line for line in process.stderr if line.endswith(" worker.errors\n"))
            process.send_signal(number)
            assert process.wait() == 0
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()
            process.wait()
            process.stderr.close()

    side_by_side(check, ["serve", "--offline"])


def test_no_subcommand_serves(tiny: Path) -> None:
    """`worker --model FILE --port N` serves, as callers of llama-server expect."""
    process = WorkerProcess("--model", str(tiny), "--port", "0", "-t", "1", "--log-format", "json")
    try:
        process.wait_for("ready")
        process.process.terminate()
        assert process.wait() == 0
    finally:
        process.end()


def test_memory_is_measured_when_ready(tmp_path: Path) -> None:
    """The log says what is held beside what was planned, and the plan is the upper bound."""
    model = ggufs.write_llama(tmp_path / "m.gguf", layers=4, embedding=512, feed_forward=1024)
    with serving("--model", model, "-t", "1") as server:
        resident = server.health()["memory_bytes"] / 1e6
        server.process.terminate()
        server.wait()
    ready = next(entry for entry in map(json.loads, server.lines) if entry["event"] == "ready")
    assert ready["memory_mb"] == pytest.approx(resident, rel=0.1)
    assert ready["memory_mb"] <= ready["planned_mb"] < 2 * ready["memory_mb"]
    assert 0 < ready["shared_out_mb"] <= ready["memory_mb"]
