"""An answer that comes before the request was read reaches every client, which may still send."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests
from uvicorn.config import Config
from uvicorn.server import ServerState

from tests.requests.client import address
from tests.support import http as web
from tests.support.programs.processes import PATIENCE_S, Server, serving, starting
from worker.http import protocol
from worker.http.connections import Connections
from worker.http.http import Listener
from worker.http.protocol import Protocol
from worker.http.replies import WholeAnswer
from worker.http.sockets import bind
from worker.limits import Limit

KEY = {"Authorization": "Bearer k3y"}
# More than the system takes by itself, so that the client still sends when it is answered.
BODY = b'{"prompt": "' + b"a" * 2**23 + b'"}'
LONG = {"prompt": "a", "max_tokens": 1_500, "ignore_eos": True, "stream": True}
NODE = """
const http = require('node:http');
const {port, cases, size} = JSON.parse(process.argv[1]);
async function ask([path, headers, chunked]) {
  return new Promise((resolve) => {
    const length = chunked ? {} : {'Content-Length': size};
    const all = {...headers, ...length};
    const agent = new http.Agent({keepAlive: headers.Connection !== 'close'});
    const to = {port, host: '127.0.0.1', path, method: 'POST', headers: all, agent};
    const asked = http.request(to);
    asked.on('response', (answer) => {
      let text = '';
      answer.on('data', (data) => (text += data));
      answer.on('end', () => { resolve([answer.statusCode, text]); agent.destroy(); });
      answer.on('error', (error) => resolve([0, String(error)]));
    });
    asked.on('error', (error) => resolve([0, String(error)]));
    asked.end(Buffer.alloc(size, 'a'));
  });
}
(async () => {
  const found = [];
  for (const each of cases) found.push(await ask(each));
  console.log(JSON.stringify(found));
})();
"""


class Refused(msgspec.Struct, frozen=True):
    """A request that is answered before its body was read."""

    status: int
    path: str
    headers: dict[str, str] = {}


BUSY = (
    Refused(400, "/v1/completions", {**KEY, "Host": "a b"}),
    Refused(401, "/v1/completions"),
    Refused(404, "/no/such/path", KEY),
    Refused(405, "/health", KEY),
    Refused(413, "/tokenize", KEY),
    Refused(415, "/tokenize", {**KEY, "Content-Encoding": "br"}),
    Refused(429, "/v1/completions", KEY),
)
FOREIGN = Refused(403, "/v1/requests/x/cancel", {"Origin": "https://other.example"})
LOADING = Refused(503, "/v1/completions")
_Case = tuple[Refused, Server]


@pytest.fixture(scope="module")
def cases(
    tiny: Path, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Generator[list[_Case]]:
    """All of them, each with a worker that refuses so."""
    common = ("--model", tiny, "-t", "1", "-np", "1", "--max-body", "1")
    waits = {"LOADED": str(tmp_path_factory.mktemp("loading") / "loaded")}
    full = (*common, "--queue-size", "0", "--api-key", "k3y")
    with (
        serving(*full, step_seconds=0.02) as busy,
        starting(*common, env=waits, step_seconds=0.02) as loading,
        web.stream("POST", busy.url + "/v1/completions", json=LONG, headers=KEY) as held,
    ):
        lines = held.iter_lines()  # kept: closing it would close the connection
        next(lines)
        yield [*((case, busy) for case in BUSY), (FOREIGN, server), (LOADING, loading)]


def _chunks() -> Iterator[bytes]:
    yield from (BODY[at : at + 2**16] for at in range(0, len(BODY), 2**16))


_Found = tuple[int, bytes]


def _urllib(url: str, headers: dict[str, str], *, chunked: bool) -> _Found:
    data: Any = _chunks() if chunked else BODY
    try:
        asked = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
        urllib.request.urlopen(asked, timeout=PATIENCE_S)
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    raise AssertionError


def _requests(url: str, headers: dict[str, str], *, chunked: bool) -> _Found:
    data: Any = _chunks() if chunked else BODY
    answer = requests.post(url, data, headers=headers, timeout=PATIENCE_S)
    return answer.status_code, answer.content


def _http_client(url: str, headers: dict[str, str], *, chunked: bool) -> _Found:
    where, _, path = url.removeprefix("http://").partition("/")
    with closing(http.client.HTTPConnection(where, timeout=PATIENCE_S)) as connection:
        data: Any = _chunks() if chunked else BODY
        connection.request("POST", f"/{path}", data, headers, encode_chunked=chunked)
        answer = connection.getresponse()
        return answer.status, answer.read()


def _curl(url: str, headers: dict[str, str], *, chunked: bool) -> _Found:
    fields = {**headers, **({"Transfer-Encoding": "chunked"} if chunked else {})}
    options = [part for name, value in fields.items() for part in ("-H", f"{name}: {value}")]
    command = ["curl", "-sS", "-w", "\n%{http_code}", *options, "--data-binary", "@-", url]
    done = subprocess.run(command, input=BODY, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    told, _, status = done.stdout.rpartition(b"\n")
    return int(status), told


CLIENTS = {"urllib": _urllib, "requests": _requests, "http.client": _http_client, "curl": _curl}


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("extra", [{}, {"Connection": "close"}, {"Expect": "100-continue"}])
def test_every_client_is_told(cases: list[_Case], name: str, extra: dict[str, str]) -> None:
    """Each status, with a length and in chunks: the whole answer, and no reset."""
    if name == "curl" and shutil.which("curl") is None:
        pytest.skip("there is no curl")
    ask: Callable[..., _Found] = CLIENTS[name]
    for chunked in (False, True):
        for case, server in cases:
            status, told = ask(
                server.url + case.path, {**case.headers, **extra}, chunked=chunked
            )  # fmt: skip
            assert status == case.status, (case, chunked, told)
            assert json.loads(told)["error"]["message"]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")
def test_node_is_told(cases: list[_Case]) -> None:
    """So is Node's client."""
    for server in {id(server): server for _, server in cases}.values():
        wanted = [
            (case, extra, chunked)
            for case, each in cases if each is server
            for extra in ({}, {"Connection": "close"})
            for chunked in (False, True)
        ]  # fmt: skip
        asked = [[case.path, {**case.headers, **extra}, chunked] for case, extra, chunked in wanted]
        told = {"port": address(server)[1], "cases": asked, "size": len(BODY)}
        done = subprocess.run(
            ["node", "-e", NODE, json.dumps(told)], capture_output=True, check=True
        )
        for case, (status, text) in zip(wanted, json.loads(done.stdout), strict=True):
            assert status == case[0].status, (case, text)
            assert json.loads(text)["error"]["message"]


def _raw(server: Server, head: str, body: bytes) -> bytes:
    """All that comes until the connection ends; the client reads once it has sent everything."""
    with socket.create_connection(address(server), timeout=PATIENCE_S) as peer:
        peer.sendall(head.encode() + body)
        return b"".join(iter(lambda: peer.recv(65_536), b""))


def test_who_reads_last_is_told(cases: list[_Case]) -> None:
    """A client that sends all before it reads, and closes nothing by itself."""
    for case, server in cases:
        fields = {"Host": "localhost", "Connection": "close", **case.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = f"POST {case.path} HTTP/1.1\r\n{lines}Content-Length: {len(BODY)}\r\n\r\n"
        answer = _raw(server, head, BODY)
        assert answer.startswith(b"HTTP/1.1 %d " % case.status)
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


def test_nothing_is_answered_behind_the_last_answer(cases: list[_Case]) -> None:
    """A request behind one that closes the connection, or whose body may never come, is dropped."""
    case, server = next(each for each in cases if each[0].status == 401)
    second = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for extra in ("Connection: close", "Expect: 100-continue"):
        head = (
            f"POST {case.path} HTTP/1.1\r\nHost: localhost\r\n{extra}\r\nContent-Length: 2\r\n\r\n"
        )
        answer = _raw(server, head, b"{}" + second)
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"connection: close" in answer.lower()
        assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("extra", ["", "Connection: close\r\n"])
def test_so_much_is_dropped(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a request that was answered so much is read; then its connection goes."""
    monkeypatch.setattr(protocol, "DROPPED", Limit(1, ""))
    told = WholeAnswer(401, [(b"content-length", b"0")], b"")

    async def never(_scope: Any, _receive: Any, _send: Any) -> None:
        raise AssertionError

    async def run() -> bytes:
        state, connections = ServerState(), Connections(10, 60, 60)
        config = Config(never, log_config=None, access_log=False, lifespan="off")
        config.load()
        make = partial(Protocol, config, state, connections, at_once=lambda _scope: told)
        listening = bind("127.0.0.1", 0)
        server = Listener(listening, connections, make)
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        with listening, closing(server):
            writer.write(f"POST / HTTP/1.1\r\n{extra}Content-Length: {2**40}\r\n\r\n".encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                while not writer.is_closing():
                    writer.write(b"a" * 2**16)
                    await writer.drain()
            while state.connections:
                await asyncio.sleep(0)
        writer.close()
        return answer

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_S)).startswith(b"HTTP/1.1 401 ")


def test_who_sends_on_when_the_worker_stops_is_told(tiny: Path) -> None:
    """A refusal on its way when the worker leaves still arrives, and the worker is not held up."""
    with serving("--model", tiny, "-t", "1", "--api-key", "k3y", "--drain-timeout", "0") as server:
        peers = [socket.create_connection(address(server), timeout=PATIENCE_S) for _ in range(2)]
        for peer, extra in zip(peers, ("", "Connection: close\r\n"), strict=True):
            head = f"POST /score HTTP/1.1\r\nHost: localhost\r\n{extra}"
            head += f"Content-Length: {2**20}\r\n\r\n"
            peer.sendall(head.encode())
            assert peer.recv(12, socket.MSG_PEEK).startswith(b"HTTP/1.1 401")
        server.process.terminate()
        assert server.wait() == 0
        for peer in peers:
            assert peer.recv(65_536).startswith(b"HTTP/1.1 401 ")
            peer.close()
