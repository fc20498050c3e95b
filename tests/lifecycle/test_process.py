"""The process from outside: bound first, ready late, leaving clean, failing with a sentence."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests import ggufs
from tests.processes import Server, WorkerProcess, serving

LONG = {"prompt": "Hello", "max_tokens": 1_500, "ignore_eos": True}


def run_worker(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A worker command that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "worker", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that loading can be seen from outside."""
    path = tmp_path_factory.mktemp("models") / "slow.gguf"
    return ggufs.write_llama(path, layers=8, embedding=1024, feed_forward=2048, context=2048)


def test_bound_before_loaded(slow_model: Path) -> None:
    """Every path answers 503 in llama-server's words while the model loads, then 200."""
    server = Server("--model", str(slow_model))
    try:
        for path in ("/health", "/v1/models", "/nope"):
            answer = httpx.get(server.url + path, timeout=10)
            if answer.status_code == 503:
                assert answer.json()["error"] | {"param": None} == {
                    "code": 503,
                    "message": "Loading model",
                    "type": "unavailable_error",
                    "param": None,
                }
                break
        else:
            pytest.fail("the model was ready before the first request")
        server.wait_until_ready()
        assert server.health()["status"] == "ok"
    finally:
        server.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_when_idle(tiny: Path, number: signal.Signals) -> None:
    """An idle worker leaves with 0."""
    with serving("--model", tiny) as server:
        server.process.send_signal(number)
        assert server.wait() == 0


def test_signal_while_loading(slow_model: Path) -> None:
    """A worker that is told to stop while it loads leaves with 0."""
    server = Server("--model", str(slow_model))
    try:
        server.process.terminate()
        assert server.wait() == 0
    finally:
        server.end()


def test_signal_while_streaming(tiny: Path) -> None:
    """A stream that outlives the drain time ends with an error event; the exit code is 0."""
    with (
        serving("--model", tiny, "--drain-timeout", "0.2", "--ctx-size", "2048") as server,
        httpx.stream(
            "POST", server.url + "/v1/completions", json={**LONG, "stream": True}, timeout=30
        ) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        server.process.terminate()
        rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert '"error"' in rest[-2]
        assert server.wait() == 0


def test_drain_lets_requests_finish(tiny: Path) -> None:
    """A running request that fits the drain time is finished; new work is refused with 503."""
    with serving("--model", tiny, "--drain-timeout", "30", "--ctx-size", "2048") as server:
        body = {**LONG, "max_tokens": 400, "stream": True}
        with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=30) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.terminate()
            server.wait_for("stopping")
            refused = httpx.get(server.url + "/health", timeout=10)
            rest = [line for line in lines if line]
        assert refused.status_code == 503
        assert '"finish_reason":"length"' in rest[-2]
        assert server.wait() == 0


def test_client_gone_while_streaming(server: Server) -> None:
    """A client that leaves mid-stream frees its slot."""
    with httpx.stream(
        "POST", server.url + "/v1/completions", json={**LONG, "stream": True}, timeout=30
    ) as answer:
        next(answer.iter_lines())
    server.wait_until(seconds=2, slots_processing=0, queue_depth=0)


def test_client_gone_without_streaming(server: Server) -> None:
    """A client that hangs up before its whole answer frees its slot."""
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(server.url + "/v1/completions", json=LONG, timeout=0.1)
    server.wait_until(seconds=2, slots_processing=0, queue_depth=0)


def test_reset_right_after_the_request(server: Server) -> None:
    """Connections that are reset right after their request leak no slot."""
    host, port = server.url.removeprefix("http://").split(":")
    body = b'{"prompt": "a", "max_tokens": 1500, "ignore_eos": true, "stream": true}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    for _ in range(100):
        peer = socket.create_connection((host, int(port)), timeout=10)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.sendall(head + body)
        peer.close()
    server.wait_until(slots_processing=0, queue_depth=0)


def test_queue_full(slow_model: Path) -> None:
    """More requests than may run and wait get 429 with Retry-After; the others are served."""
    held = {**LONG, "prompt": ["a", "b"], "stream": True}
    with serving("--model", slow_model, "-np", "1", "--queue-size", "1") as server:
        with httpx.stream("POST", server.url + "/v1/completions", json=held, timeout=60) as first:
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
    done = run_worker("serve", "--model", tiny, "--port", port)
    assert done.returncode == 3
    assert last_line(done.stderr).startswith("error: CANNOT_BIND: Cannot listen on 127.0.0.1:")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["serve", "--port", "70000"], "--port"),
        (["serve", "--no-such-flag"], "--no-such-flag"),
        (["serve", "--cache-type-k", "q3"], "--cache-type-k"),
        (["frobnicate"], "frobnicate"),
        ([], "COMMAND"),
        (["--port", "x"], "--port"),
        (["generate"], "prompt"),
        (["generate", "a", "--temperature", "-1"], "temperature"),
        (["generate", "a", "-n", "0"], "--max-tokens"),
        (["serve", "--host", "a" * 80], "--host"),
        (["serve", "--port", "0", "-fa", "off", "-ctv", "q4_0"], "--cache-type-v"),
        (["serve", "--backend", "cuda", "--device", "Nowhere9"], "cuda"),
    ],
)
def test_wrong_usage(arguments: list[str], part: str) -> None:
    """Wrong options are exit 2, one sentence that names what is wrong."""
    done = run_worker(*arguments, *(["--port", "0"] if "--backend" in arguments else []))
    assert done.returncode == 2, done.stderr
    line = last_line(done.stderr)
    assert line.startswith("error: USAGE: ")
    assert part in line
    assert "Traceback" not in done.stderr


def test_wrong_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unusable variable is exit 2 and named."""
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "many")
    done = run_worker("serve", "--port", "0")
    assert done.returncode == 2
    assert "LLAMA_ARG_CTX_SIZE" in last_line(done.stderr)


BAD_FILES = {
    "empty": b"",
    "foreign": b"<!DOCTYPE html><html></html>",
    "truncated": None,
    "zip": b"PK\3\4" + b"\0" * 100,
}


@pytest.mark.parametrize("kind", [*BAD_FILES, "missing", "directory", "vocabulary"])
def test_bad_model_file(kind: str, tiny: Path, tmp_path: Path) -> None:
    """A file that is no model is exit 1 and one sentence that says what it is."""
    path = tmp_path / "model.gguf"
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
    done = run_worker("serve", "--model", path, "--port", "0")
    assert done.returncode == 1, done.stderr
    line = last_line(done.stderr)
    assert line.startswith("error: ")
    assert line.endswith((".", "?"))
    assert "Traceback" not in done.stderr


def test_too_large_for_the_machine(tiny: Path) -> None:
    """A context that cannot fit is exit 4 and says what would."""
    done = run_worker("serve", "--model", tiny, "--port", "0", "-c", "2000000000")
    assert done.returncode == 4, done.stderr
    assert last_line(done.stderr).startswith("error: DOES_NOT_FIT: ")


def test_second_signal_leaves_at_once(tiny: Path) -> None:
    """A second signal does not wait for the drain."""
    with (
        serving("--model", tiny, "--drain-timeout", "60", "-c", "2048") as server,
        httpx.stream(
            "POST", server.url + "/v1/completions", json={**LONG, "stream": True}, timeout=30
        ) as answer,
    ):
        next(answer.iter_lines())
        server.process.terminate()
        server.wait_for("stopping")
        started = time.monotonic()
        server.process.terminate()
        assert server.wait() == 0
        assert time.monotonic() - started < 10


def test_log_is_json(tiny: Path) -> None:
    """Each line of --log-format json is one JSON object."""
    with serving("--model", tiny) as server:
        server.post({"prompt": "a", "max_tokens": 2})
        server.process.terminate()
        server.wait()
        events = [json.loads(line)["event"] for line in server.lines]
    assert events[0] == "listening"
    assert "ready" in events


def test_ids_pass_through(server: Server) -> None:
    """x-request-id and X-Correlation-Id come back; an id is made where none was sent."""
    answer = httpx.get(
        server.url + "/health", headers={"x-request-id": "r1", "x-correlation-id": "c1"}
    )
    assert (answer.headers["x-request-id"], answer.headers["x-correlation-id"]) == ("r1", "c1")
    assert httpx.get(server.url + "/health").headers["x-request-id"].startswith("req-")


def test_nobody_reads_stderr(tiny: Path) -> None:
    """A worker whose standard error lost its reader still serves and stops when told to."""
    process = subprocess.Popen(
        [sys.executable, "-m", "worker", "serve", "--model", str(tiny), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        url = next(line for line in process.stderr if "listening" in line).split("url=")[1].strip()
        process.stderr.close()
        for _ in range(100):
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(url + "/health").status_code == 200:
                    break
            time.sleep(0.1)
        assert httpx.post(url + "/v1/completions", json={"prompt": "a"}).status_code == 200
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(tiny: Path, closed: str) -> None:
    """Commands work with any of the standard streams closed from the start."""
    command = f'{sys.executable} -m worker generate a -n 1 --model "{tiny}" {closed}'
    assert subprocess.run(["sh", "-c", command], timeout=60).returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_full_disk(tiny: Path) -> None:
    """Output that cannot be written is exit 1 and a sentence."""
    command = f'{sys.executable} -m worker show "{tiny}" > /dev/full'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_signal_at_the_very_start(tiny: Path) -> None:
    """Being told to stop before the socket is bound is no failure either."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys, time, worker.cli.main as m\n"
         "print('up', flush=True)\nm.run()", "serve", "--model", str(tiny), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05)
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_closed_stdout(tiny: Path) -> None:
    """A worker whose standard output is closed still serves."""
    server = Server("--model", str(tiny))
    try:
        assert server.process.stdout is not None
        server.process.stdout.close()
        server.wait_until_ready()
        assert server.post({"prompt": "a", "max_tokens": 2}).status_code == 200
    finally:
        server.end()


def test_no_subcommand_serves(tiny: Path) -> None:
    """`worker --model FILE --port N` serves, as callers of llama-server expect."""
    process = WorkerProcess("--model", str(tiny), "--port", "0", "--log-format", "json")
    try:
        process.wait_for("ready")
        process.process.terminate()
        assert process.wait() == 0
    finally:
        process.end()
