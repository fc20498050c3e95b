"""What is wrong with a request is a 400 that names the field, and the next one is served."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Generator

import httpx
import pytest

from tests.service.bodies import BAD_BODIES, BAD_FIELDS
from tests.support import http
from tests.support.cases import for_each
from tests.support.programs.processes import Server
from worker.api.intake.packed_body import zstd


@pytest.fixture(autouse=True)
def _next_is_served(server: Server) -> Generator[None]:
    """After each test a good request gets the answer that it got before."""
    good = {"prompt": "Hello", "max_tokens": 4, "temperature": 0}
    before = server.post(good).json()["choices"]
    yield
    assert server.post(good).json()["choices"] == before
    server.wait_until(slots_processing=0, queue_depth=0)


@for_each(("field", "value"), BAD_FIELDS)
def test_bad_field(server: Server, field: str, value: object) -> None:
    """A wrong value is a 400 whose error names the field."""
    answer = server.post({"prompt": "Hello", "max_tokens": 4, field: value})
    assert answer.status_code == 400, answer.text[:500]
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == field
    assert error["message"]


@pytest.mark.parametrize("name", BAD_BODIES)
def test_bad_body(server: Server, name: str) -> None:
    """A body that is not the JSON we read is a 400 in OpenAI's shape."""
    answer = http.post(server.url + "/v1/completions", content=BAD_BODIES[name])
    assert answer.status_code == 400, answer.text[:300]
    assert answer.json()["error"]["message"]


def test_other_codings_are_refused(server: Server) -> None:
    """Also where what comes would be JSON."""
    for coding in ("deflate", "br"):
        headers = {"content-encoding": coding}
        answer = http.post(server.url + "/v1/completions", content=b"{}", headers=headers)
        assert answer.status_code == 415
        assert answer.json()["error"]["code"] == "unsupported_encoding"
    headers = {"content-encoding": "identity"}
    body = b'{"prompt": "a", "max_tokens": 1}'
    url = server.url + "/v1/completions"
    assert http.post(url, content=body, headers=headers).status_code == 200


def test_packed_bodies(server: Server) -> None:
    """gzip and zstd are read at every route, within the limit of what they unpack to."""
    body = b'{"prompt": "a", "max_tokens": 1}'
    bomb = b'{"prompt": "' + b"a" * (17 << 20) + b'"}'
    url = server.url + "/v1/completions"
    for coding, pack in (("gzip", gzip.compress), ("zstd", zstd.compress)):
        headers = {"content-encoding": coding}
        assert http.post(url, content=pack(body), headers=headers).status_code == 200
        answer = http.post(url, content=pack(bomb), headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
        answer = http.post(url, content=pack(body)[:-2], headers=headers)
        assert answer.status_code == 400
        assert f"not valid {coding}" in answer.json()["error"]["message"]


def test_where_it_is_not_utf8(server: Server) -> None:
    """Counted from the body's first byte."""
    answer = http.post(server.url + "/v1/completions", content=b'{"prompt":"\xff"}')
    assert "byte 11 is not UTF-8" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
def test_paths_without_v1(server: Server, path: str) -> None:
    """They answer as those with it do, errors too."""
    asked = {"input": "Hi", "messages": [{"role": "user", "content": "Hi"}]}
    few = {"max_tokens": 4} if "chat" in path else {"max_output_tokens": 4}
    for body in ({**asked, **few}, {"input": 5}):
        answers = [server.post({**body, "temperature": 0}, at) for at in (path, f"/v1{path}")]
        assert answers[0].status_code == answers[1].status_code
        assert answers[0].json().keys() == answers[1].json().keys()
    assert http.get(server.url + "/models").json() == http.get(server.url + "/v1/models").json()


def test_large_body(server: Server) -> None:
    """A body above the limit is a 413."""
    body = b'{"prompt": "' + b"a" * (17 * 2**20) + b'"}'
    try:
        answer = http.post(server.url + "/v1/completions", content=body)
    except httpx.WriteError:
        return  # the worker answered and closed while we still wrote
    assert answer.status_code == 413
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "too_large")


@pytest.mark.parametrize(
    "prompt", [b"[" + b"[]," * 600_000 + b"[]]", b'{"a": [' + b'{"b":1},' * 300_000 + b"1]}"]
)
def test_a_body_of_countless_parts(server: Server, prompt: bytes) -> None:
    """A body that would take long to decode is a 413, however few its bytes are."""
    body = b'{"prompt": ' + prompt + b"}"
    answer = http.post(server.url + "/v1/completions", content=body)
    assert answer.status_code == 413
    assert "lists, objects and fields" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nope", 404), ("GET", "/v1/completions", 405), ("GET", "/v1/models/other", 404)],
)
def test_wrong_place(server: Server, method: str, path: str, status: int) -> None:
    """A wrong path or method gets its status in OpenAI's shape."""
    answer = http.request(method, server.url + path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        b"Content-Length: 6\r\n\r\nabcdef",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
    ids=["blank", "garbage", "negative", "two lengths", "long header", "dots"],
)
def test_bad_http(server: Server, raw: bytes) -> None:
    """What is not HTTP is answered with a 4xx or by closing, never by the process's end."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as peer:
        try:
            peer.sendall(raw)
            peer.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: peer.recv(65536), b""))
        except OSError:  # the worker closed while we still wrote
            return
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"a:b:c", 400), (b"http://x/y", 400), (b"a:99999", 400), (b"[::1", 400), (b"[1.2]", 400),
        (b"a/b", 400), (b"u@a", 400), (b"a\r\nHost: b", 400), (b"a_b-d:1", 403), (b"a:", 403),
        (b"[::1]:80", 200), (b"", 200), (253 * b"a" + b":65535", 403), (300 * b"a", 400),
    ],
)  # fmt: skip
def test_the_host_header(server: Server, host: bytes, status: int) -> None:
    """It names one host, or the answer is 400; and one of the worker's. On every path."""
    where, port = server.url.removeprefix("http://").split(":")
    for path in (b"/health", b"/v1/models", b"/version", b"/v1/models/org/tiny"):
        with socket.create_connection((where, int(port))) as peer:
            peer.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
            assert peer.recv(65536).startswith(b"HTTP/1.1 %d " % status), path


def test_error_body_is_json(server: Server) -> None:
    """An error to a streamed request before its first token is plain JSON with its status."""
    answer = server.post({"prompt": "a", "stream": True, "grammar": "root ::= ("})
    assert answer.status_code == 400
    assert json.loads(answer.text)["error"]["param"] == "grammar"
