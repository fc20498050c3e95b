"""A service whose model is on RPC servers: what it says, and what it does when they die."""

from __future__ import annotations

import json
import re
import signal

import httpx
import pytest

from tests.support import http
from tests.support.programs.offloaded import (
    LAYERS,
    PROMPT,
    TOKENS,
    Loaded,
    last_line,
    load,
    settings,
    words,
)
from tests.support.programs.processes import Server, WorkerProcess, serving
from tests.support.programs.rpc_server import RpcServer, rpc_server
from worker.demo import MODEL_PATH

on_rpc = pytest.mark.rpc


def complete(server: Server) -> str:
    """The greedy continuation of the prompt."""
    body = {"prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0}
    answer = server.post(body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


@on_rpc
@pytest.mark.parametrize("layers", ["3", "all"])
def test_the_service_says_where_everything_is(device: RpcServer, layers: str) -> None:
    """The log, /health, /info and /metrics of a worker that runs on the device."""
    there = LAYERS if layers == "all" else int(layers)
    with serving("-c", "1024", "-t", "1", "-tb", "1") as server:
        expected = complete(server)
        without = server.health()["memory_bytes"]
    server = Server(*words(device, layers=layers), "--backend", "rpc")
    try:
        ready = server.wait_for("ready")
        layers_on = {"CPU": LAYERS - there, "RPC0": there}
        cells_on = {"CPU": LAYERS - there, "RPC0": there - 1}
        assert ready["layers"] == {name: n for name, n in layers_on.items() if n}
        assert ready["kv"] == {name: n for name, n in cells_on.items() if n}
        assert set(ready["buffers_mb"]) == {"CPU", "RPC0"}
        assert complete(server) == expected
        health = server.health()
        assert health["status"] == "ok"
        assert health["resident"] is True
        info = http.get(server.url + "/info").json()
        assert (info["backend"], info["device"]) == ("rpc", "GPU-0")
        assert info["memory_architecture"] == "vram-only"
        assert info["vram_bytes"] / 1e6 == pytest.approx(ready["buffers_mb"]["RPC0"], abs=0.51)
        metrics = http.get(server.url + "/metrics").text
        shown = re.search(r"^worker_vram_bytes\{.*\} (\S+)$", metrics, re.MULTILINE)
        assert shown is not None
        assert float(shown[1]) == info["vram_bytes"] > 3e6
        # Its model is elsewhere, and it is counted with what is held there.
        assert health["memory_bytes"] == pytest.approx(without, rel=0.25)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    finally:
        server.end()


@on_rpc
def test_a_device_that_dies_in_a_stream() -> None:
    """llama.cpp has no other answer than to end the process: exit code 1 at once, the last line
    says why, and the client's stream is cut, because nothing can run any more."""
    with rpc_server() as device, serving(*words(device, layers="all")) as server:
        body = {"prompt": PROMPT, "max_tokens": 900, "temperature": 0, "ignore_eos": True,
                "stream": True}  # fmt: skip
        with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=30) as answer:
            lines = filter(None, answer.iter_lines())
            for _ in range(5):
                assert json.loads(next(lines).removeprefix("data: "))["choices"]
            device.end()
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                list(lines)
        assert server.wait(10) == 1
        assert re.fullmatch(
            r"error: RPC_SERVER: llama\.cpp gave up: Remote RPC server crashed or returned "
            r"malformed response \(ggml-rpc\.cpp:\d+\)\.",
            last_line(server),
        ), server.lines


@on_rpc
def test_a_device_that_dies_when_idle() -> None:
    """It is noticed by the next request, which gets no answer."""
    with rpc_server() as device, serving(*words(device, layers="all")) as server:
        device.end()
        assert server.health()["status"] == "ok"
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            server.post({"prompt": PROMPT, "max_tokens": 2})
        assert server.wait(10) == 1
        assert last_line(server).startswith("error: RPC_SERVER: ")


@on_rpc
def test_a_stop_after_the_device_died() -> None:
    """The worker leaves in time, and not with 0: it could not free what it had there."""
    with rpc_server() as device, serving(*words(device, layers="all")) as server:
        device.end()
        server.process.send_signal(signal.SIGTERM)
        assert server.wait(5) == 1
        assert last_line(server).startswith("error: RPC_SERVER: ")


@on_rpc
def test_a_server_that_another_worker_uses(device: RpcServer) -> None:
    """An RPC server serves one process at a time; the second is told so and leaves."""
    with serving(*words(device, layers="all")) as first:
        second = WorkerProcess("serve", "--port", "0", *words(device, layers="all"))
        try:
            assert second.wait(30) == 1
            assert "another may be using it" in last_line(second)
        finally:
            second.end()
        assert complete(first)


@on_rpc
def test_a_server_is_free_again(device: RpcServer, on_cpu: Loaded) -> None:
    """A worker that was killed leaves the server to the next."""
    with serving(*words(device, layers="all")) as server:
        server.process.kill()
        server.process.wait(10)
    assert load(MODEL_PATH, settings(device, layers=-1)).tokens == on_cpu.tokens
