"""With a key set nothing but health is open; without one everything is."""

from __future__ import annotations

import socket
from collections.abc import Generator
from pathlib import Path

import openai
import pytest

from tests.support import http
from tests.support.programs.processes import Server, serving, starting

KEY = "k3y-with/pUnct+uation=="
RIGHT = {b"authorization": b"Bearer " + KEY.encode()}
OPEN = ["/", "/health", "/v1/health", "/livez", "/readyz", "/v2/health/live", "/v2/health/ready"]
CLOSED = [
    ("GET", "/metrics"),
    ("HEAD", "/metrics"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/org/tiny"),
    ("GET", "/v2/models/org/tiny/ready"),
    ("GET", "/info"),
    ("GET", "/props"),
    ("GET", "/slots"),
    ("GET", "/version"),
    ("GET", "/is_sleeping"),
    ("GET", "/tokenizer_info"),
    ("GET", "/v1/loading/progress"),
    ("GET", "/v1/jobs/x/stream"),
    ("POST", "/v1/completions"),
    ("POST", "/execute"),
    ("POST", "/v1/jobs"),
    ("POST", "/v1/inference"),
    ("POST", "/v1/infer"),
    ("POST", "/cancel"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/shutdown"),
    ("POST", "/v1/shutdown"),
    ("POST", "/v1/admin/shutdown"),
    ("GET", "/no/such/path"),
    ("DELETE", "/health/"),
    ("GET", "/health/../metrics"),
    ("GET", "//health"),
    ("OPTIONS", "/v1/models"),
]


@pytest.fixture(scope="module")
def locked(tiny: Path) -> Generator[Server]:
    with serving("--model", tiny, "--alias", "org/tiny", "-t", "1", "--api-key", KEY) as server:
        yield server


@pytest.mark.parametrize("path", OPEN)
def test_health_is_open(locked: Server, path: str) -> None:
    """The health paths need no key."""
    assert http.get(locked.url + path).status_code == 200


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_everything_else_is_closed(locked: Server, method: str, path: str) -> None:
    """Without the key a path answers 401, whether it exists or not; HEAD without a body."""
    answer = http.request(method, locked.url + path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["x-request-id"]
    if method != "HEAD":
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["code"], error["type"]) == ("MISSING_API_KEY", "authentication_error")


@pytest.mark.parametrize(
    "value",
    [b"Bearer " + KEY.encode(), b"bearer " + KEY.encode(), b"BEARER   " + KEY.encode()],
)
def test_right_key(locked: Server, value: bytes) -> None:
    """The scheme's case and spaces around the key do not matter."""
    assert http.get(locked.url + "/info", headers={b"authorization": value}).status_code == 200


def test_x_api_key(locked: Server) -> None:
    """Some clients send the key alone; an empty one beside a bearer key does not matter."""
    for headers in ({b"x-api-key": KEY.encode()}, {b"x-api-key": b"", **RIGHT}):
        assert http.get(locked.url + "/info", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"", "MISSING_API_KEY"),
        (b"Bearer", "MISSING_API_KEY"),
        (b"Basic " + KEY.encode(), "MISSING_API_KEY"),
        (KEY.encode(), "MISSING_API_KEY"),
        (b"Bearer " + KEY.encode()[:-1], "INVALID_API_KEY"),
        (b"Bearer " + KEY.encode() + b"x", "INVALID_API_KEY"),
        (b"Bearer " + KEY.upper().encode(), "INVALID_API_KEY"),
        (b"Bearer " + b"a" * 50_000, "INVALID_API_KEY"),
        (b"Bearer \xff\xfe", "INVALID_API_KEY"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_wrong_key(locked: Server, value: bytes, code: str) -> None:
    """A wrong key is 401 with the original's code."""
    answer = http.get(locked.url + "/info", headers={b"authorization": value})
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == code


def test_before_the_body(locked: Server) -> None:
    """401 comes before a body is read, also before one that would be too large."""
    host, port = locked.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n{"
        )
        assert peer.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_while_loading(tiny: Path, tmp_path: Path) -> None:
    """While the model loads, a request without the key gets 401 and one with it 503."""
    env = {"LOADED": str(tmp_path / "never")}
    with starting("--model", tiny, "--api-key", KEY, env=env, step_seconds=0.02) as server:
        assert http.get(server.url + "/v1/models", headers=RIGHT).status_code == 503
        assert http.get(server.url + "/v1/models").status_code == 401
        assert http.get(server.url + "/v1/loading/progress").status_code == 401


def test_official_client(locked: Server) -> None:
    """The official client gets in with the key and its typed error without."""
    with openai.OpenAI(base_url=locked.url + "/v1", api_key=KEY, max_retries=0) as client:
        assert client.models.list().data[0].id == "org/tiny"
    with openai.OpenAI(base_url=locked.url + "/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            client.models.list()
        assert caught.value.code == "INVALID_API_KEY"


def test_no_key_set(server: Server) -> None:
    """A worker without a key accepts any key: clients send empty and invented ones."""
    for value in (b"Bearer", b"Bearer x", b"Basic eDp5", b""):
        answer = http.get(server.url + "/v1/models", headers={b"authorization": value})
        assert answer.status_code == 200
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as peer:
        # As lm-eval sends it, which httpx refuses to send.
        peer.sendall(b"GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \r\n\r\n")
        assert peer.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_key_is_not_logged(locked: Server) -> None:
    """Nothing that the worker says holds the key, right or wrong."""
    http.get(locked.url + "/info", headers={"authorization": "Bearer wr0ng-key"})
    http.get(locked.url + "/info", headers=RIGHT)
    assert not any(KEY in line or "wr0ng" in line or "k3y" in line for line in locked.lines)
