"""HTTP/1.1 by hand, over the real process's socket: what unusual clients send."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from functools import partial
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from tests.support.programs.processes import PATIENCE_S, Server
from worker.http.connections import Connections
from worker.http.http import Listener
from worker.http.protocol import Protocol
from worker.http.sockets import bind
from worker.limits import HEADERS, PATH

BODY = json.dumps({"prompt": "a", "max_tokens": 3, "stream": True, "ignore_eos": True}).encode()
TO_HTTP2 = (
    b"Host: localhost\r\nConnection: Upgrade, HTTP2-Settings, close\r\n"
    b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAA\r\n"
)


def talk(server: Server, *parts: bytes) -> bytes:
    """All that comes back until the connection is closed."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as peer:
        for part in parts:
            peer.sendall(part)
            time.sleep(0.02)  # so that it is read by itself, most of the time
        return b"".join(iter(partial(peer.recv, 65_536), b""))


def post(headers: bytes, version: bytes = b"1.1") -> bytes:
    return (
        b"POST /v1/completions HTTP/" + version + b"\r\n" + headers
        + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    )  # fmt: skip


def num_tokens(answer: bytes) -> int:
    return sum(b'"text":' in line for line in answer.split(b"\n") if line.startswith(b"data: {"))


def test_http_1_0_gets_no_chunks(server: Server) -> None:
    """The end of the connection ends the stream."""
    answer = talk(server, post(b"", b"1.0"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert body.startswith(b"data: {")
    assert body.endswith(b"data: [DONE]\n\n")
    assert num_tokens(body) == 3
    whole = talk(server, b"GET /health HTTP/1.0\r\n\r\n")
    assert json.loads(whole.partition(b"\r\n\r\n")[2])["status"] == "ok"


def test_who_asks_for_http_2_is_answered(server: Server) -> None:
    """Java's client asks so with its first request, and the body follows at once."""
    request = post(TO_HTTP2)
    assert num_tokens(talk(server, request)) == 3
    cuts = (40, 150, len(request) - 20)
    pieces = [request[a:b] for a, b in zip((0, *cuts), (*cuts, len(request)), strict=True)]
    assert num_tokens(talk(server, *pieces)) == 3
    chunked = TO_HTTP2 + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(BODY)
    chunked = b"POST /v1/completions HTTP/1.1\r\n" + chunked + BODY + b"\r\n0\r\n\r\n"
    assert num_tokens(talk(server, chunked)) == 3


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 3 * HEADERS.most,
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
        + b"X: abc\r\n" * (HEADERS.most // 4)
        + b"\r\n",
        b"GET /" + b"a" * PATH.most + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
        + b"X: abc\r\n" * (HEADERS.most // 4),
        b"CONNECT a:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
    ],
    ids=["value", "many", "path", "trailer", "proxy", "two lengths", "TLS"],
)
def test_refused(server: Server, request_bytes: bytes) -> None:
    """Too large or not HTTP: 400, whatever is still sent, and the next is served."""
    assert talk(server, request_bytes).startswith(b"HTTP/1.1 400 ")
    assert num_tokens(talk(server, post(b"Host: localhost\r\nConnection: close\r\n"))) == 3


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_connection_that_nobody_reads_is_let_go(is_whole: bool) -> None:
    """Also when its answer is whole, or was given up: what waits would hold it for ever."""
    head: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": []}

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(head)
        # More than the system takes by itself.
        body = b"a" * 50_000_000
        await send({"type": "http.response.body", "body": body, "more_body": not is_whole})

    async def run() -> None:
        state = ServerState()
        config = Config(app, log_config=None, access_log=False, lifespan="off")
        config.load()
        listening = bind("127.0.0.1", 0)
        connections = Connections(10, 60, 0.02)
        server = Listener(listening, connections, partial(Protocol, config, state, connections))
        with socket.create_connection(listening.getsockname()) as peer, listening:
            peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while not state.connections:
                await asyncio.sleep(0)
            while state.connections:
                await asyncio.sleep(0.005)
        server.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
