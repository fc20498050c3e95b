"""`worker batch`: each line asked once, what is there is kept, and what became of it is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs.processes import ended
from worker.cli.main import main

Answer = tuple[int, dict[str, str], object]


class Asked:
    """What a server was asked: custom names of the requests, in order, and their headers."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.headers: list[Any] = []


@contextmanager
def answering(answer: Callable[[str, int], Answer]) -> Generator[tuple[str, Asked]]:
    """A server whose answer depends on a prompt's last word, and on how often that was asked."""
    asked, counts = Asked(), Counter[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, {}, {"total_slots": 2})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            name = body["prompt"].split()[-1]
            counts[name] += 1
            asked.names.append(name)
            asked.headers.append(self.headers)
            self._send(*answer(name, counts[name]))

        def _send(self, status: int, headers: dict[str, str], reply: object) -> None:
            data = json.dumps(reply).encode()
            self.send_response(status)
            for field, value in (headers | {"content-length": str(len(data))}).items():
                self.send_header(field, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def fine(name: str, _count: int) -> Answer:
    """An answer that names its request."""
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    return 200, {"x-request-id": f"req-{name}"}, {"text": name, "usage": usage}


def line_of(name: str, prompt: str | None = None) -> str:
    """A request for a completion."""
    body = {"max_tokens": 4, "temperature": 0, "prompt": prompt or f"Say {name}"}
    return json.dumps({"custom_id": name, "method": "POST", "url": "/v1/completions", "body": body})


def write_lines(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def answers_in(path: Path) -> dict[str, Any]:
    """custom_id -> response; each is there once."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {line["custom_id"]: line["response"] for line in lines}
    assert len(found) == len(lines)
    return found


def test_each_line_has_its_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, a summary in numbers; other clients of a running worker come first; requests
    that begin alike follow each other."""
    names = [f"n{number}" for number in range(12)]
    lines = [line_of(name, f"{'AB'[i % 2]} text {name}") for i, name in enumerate(names)]
    source, out = write_lines(tmp_path / "in", *lines, ""), tmp_path / "out"
    with answering(fine) as (url, asked):
        words = [str(source), str(out), "--url", url, "--parallel", "1", "--api-key", "k", "--json"]
        assert main(["batch", *words]) == 0
    assert {name: found["body"]["text"] for name, found in answers_in(out).items()} == {
        name: name for name in names
    }
    assert answers_in(out)["n3"]["request_id"] == "req-n3"
    told = json.loads(capsys.readouterr().out)
    assert (told["lines"], told["answered"], told["failed"], told["wrong"]) == (12, 12, 0, 0)
    assert (told["prompt_tokens"], told["generated_tokens"]) == (36, 24)
    assert {(each["x-priority"], each["authorization"]) for each in asked.headers} == {
        ("10", "Bearer k")
    }
    # Two are asked at once.
    assert {int(name[1:]) % 2 for name in asked.names[:5]} == {0}
    assert {int(name[1:]) % 2 for name in asked.names[-5:]} == {1}


def test_going_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A refused line is told and stays out of the way of others; the next run asks only that, and
    what was cut."""

    def refusing(name: str, count: int) -> Answer:
        told = {"error": {"message": "b is \x1b wrong."}}
        return (400, {}, told) if name == "b" and count == 1 else fine(name, count)

    source, out = write_lines(tmp_path / "in", *map(line_of, "abc")), tmp_path / "out"
    with answering(refusing) as (url, asked):
        words = ["batch", str(source), str(out), "--url", url]
        assert main(words) == 1
        told = "2 of 3 lines answered, 1 failed, the first with 400 (b is \\x1b wrong.);"
        assert told in capsys.readouterr().err
        assert answers_in(out)["b"]["status_code"] == 400
        out.write_bytes(out.read_bytes() + b'{"id":"batch_req_7')
        del asked.names[:]
        assert main(words) == 0
        assert asked.names == ["b"]
        assert main(words) == 0
        assert asked.names == ["b"]
    assert {found["status_code"] for found in answers_in(out).values()} == {200}
    assert "3 of 3 lines answered, 3 of them before." in capsys.readouterr().err


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_that_passes(tmp_path: Path, status: int) -> None:
    """A line is asked again after the time that the worker names."""

    def busy(name: str, count: int) -> Answer:
        refused = status, {"retry-after": "0"}, {"error": {"message": "later"}}
        return refused if count < 4 else fine(name, count)

    source, out = write_lines(tmp_path / "in", *map(line_of, "ab")), tmp_path / "out"
    with answering(busy) as (url, asked):
        assert main(["batch", str(source), str(out), "--url", url]) == 0
    assert Counter(asked.names) == {"a": 4, "b": 4}
    assert len(answers_in(out)) == 2


def test_lines_that_are_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are told with their numbers, and the others are answered; the exit code is 1."""
    lines = [line_of("a"), "no json", line_of("a"), line_of("b")]
    source, out = write_lines(tmp_path / "in", *lines), tmp_path / "out"
    with answering(fine) as (url, _):
        assert main(["batch", str(source), str(out), "--url", url]) == 1
    assert set(answers_in(out)) == {"a", "b"}
    told = capsys.readouterr().err
    assert "line 2: invalid_json_line: " in told
    assert "line 3: duplicate_custom_id: " in told
    assert "2 of 2 lines answered, 2 cannot be asked" in told


def test_a_worker_that_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come back for a while; then the batch stops, and says how to go on."""
    monkeypatch.setattr("worker.cli.batch._PATIENCE_S", 0.0)
    source, out = write_lines(tmp_path / "in", *map(line_of, "abcdef")), tmp_path / "out"

    def leaving(name: str, count: int) -> Answer:
        return fine(name, count) if name in "ab" else (502, {"retry-after": "0"}, "gone")

    with answering(leaving) as (url, _):
        assert main(["batch", str(source), str(out), "--url", url, "--parallel", "1"]) == 1
    told = capsys.readouterr().err
    assert "answers 502 only. Give the same command again to go on." in told
    assert set(answers_in(out)) == {"a", "b"}


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption(tmp_path: Path, stop: signal.Signals) -> None:
    """Ctrl-C or SIGTERM keeps what is there, says how to go on, and ends with 130 or 143 although
    lines are being asked; standard input will do as IN."""
    gate, out = threading.Event(), tmp_path / "out"

    def stuck(name: str, count: int) -> Answer:
        if name == "c":
            os.kill(process.pid, stop)
            gate.wait(60)
        return fine(name, count)

    with answering(stuck) as (url, _):
        source = write_lines(tmp_path / "in", *map(line_of, "abc"))
        words = ["batch", "-", str(out), "--url", url, "--parallel", "1"]
        with source.open() as stdin:
            process = subprocess.Popen(
                [sys.executable, "-m", "worker", *words], stdin=stdin, stderr=subprocess.PIPE
            )
        try:
            _, told = process.communicate(timeout=60)
        finally:
            gate.set()
            process.kill()
    assert process.returncode == 128 + stop
    assert b"Give the same command again to go on." in told
    # The third is asked after an answer: one at once, and one ahead.
    assert len(answers_in(out)) >= 1
    assert set(answers_in(out)) <= {"a", "b"}


def test_its_own_worker(tmp_path: Path) -> None:
    """Without an address the demo model answers, all APIs alike; standard output will do as OUT."""
    bodies: dict[str, object] = {
        "/v1/completions": {"prompt": "Once upon a time", "max_tokens": 3},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3},
        "/v1/responses": {"input": "Hi", "max_output_tokens": 3},
        "/v1/decisions": {"input": "It rains.", "questions": {}},
    }
    lines = [
        json.dumps({"custom_id": url, "method": "POST", "url": url, "body": body})
        for url, body in bodies.items()
    ]
    source = write_lines(tmp_path / "in", *lines)
    done = ended("batch", "--ctx-size", "2048", "-t", "1", "--", source, "-")
    (tmp_path / "out").write_text(done.stdout)
    found = {url: each["status_code"] for url, each in answers_in(tmp_path / "out").items()}
    assert found == dict.fromkeys(bodies, 200) | {"/v1/decisions": 400}
    assert done.returncode == 1
    assert "3 of 4 lines answered, 1 failed, the first with 400 (" in done.stderr
