"""With a key set nothing but health is open; without one everything is."""

from __future__ import annotations

import hmac
import json
import re
import signal
import socket
from collections.abc import Generator
from pathlib import Path

import openai
import pytest

from tests.support import http
from tests.support.programs.processes import Server, serving, starting
from worker.errors import NotAuthenticatedError
from worker.http.headers import Auth
from worker.keys import key_file
from worker.service.app import APIS

KEY = "k3y-with/pUnct+uation=="
RIGHT = {b"authorization": b"Bearer " + KEY.encode()}
# All that answers without a key: health, which managers and probes ask; and at `/`, for a browser,
# the page, which holds no data and asks for the key. A path is added here after thought only.
OPEN = {
    "/", "/health", "/v1/health", "/livez", "/readyz", "/ping", "/v2/health/live",
    "/v2/health/ready",
}  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
UNKNOWN = [
    "/no/such/path", "/health/", "/health/../metrics", "//health", "/HEALTH", "/health%2f",
    "/v1", "/v1/", "/favicon.ico", "/static/x", "/.env",
]  # fmt: skip


def routed() -> dict[str, str]:
    """Each path of the router with something in the place of its parameters -> the path."""
    found = [path for api in APIS for route in api.routes for path in route.handler.paths]
    return {re.sub(r"\{\w+:\w+\}", "x", path): path for path in found}


@pytest.fixture(scope="module")
def locked(tiny: Path) -> Generator[Server]:
    with serving("--model", tiny, "--alias", "org/tiny", "-t", "1", "--api-key", KEY) as server:
        yield server


def refused(locked: Server, method: str, path: str) -> tuple[object, ...]:
    """How a path answers without the key: always the same, but for what tells requests apart."""
    answer = http.request(method, locked.url + path)
    assert answer.status_code == 401, (method, path)
    request_id = answer.headers.pop("x-request-id")
    answer.headers.pop("request-id", None)  # where Anthropic's clients look for it
    answer.headers.pop("date")
    return answer.text.replace(request_id, "ID"), sorted(answer.headers.items())


@pytest.mark.parametrize("path", sorted(OPEN))
def test_health_is_open(locked: Server, path: str) -> None:
    """The health paths need no key, and have no other method than GET and HEAD."""
    for method in METHODS:
        answer = http.request(method, locked.url + path)
        right = {"GET": 200, "HEAD": 200, "OPTIONS": 204}.get(method, 405)
        assert answer.status_code == right, method


def test_every_route_is_closed(locked: Server) -> None:
    """Without the key all paths of the router but the open ones answer 401 to every method."""
    paths = routed()
    assert set(paths) >= OPEN
    assert len(paths) > len(OPEN) + 40
    for path in set(paths) - OPEN:
        answers = {method: refused(locked, method, path) for method in METHODS}
        assert answers["HEAD"][0] == ""
        assert all(answers["GET"][0] == text for text, _ in answers.values() if text), path


def test_nothing_tells_which_paths_there_are(locked: Server) -> None:
    """A path that does not exist answers like one that does."""
    known = refused(locked, "GET", "/v1/models")
    error = json.loads(str(known[0]))["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["type"]) == ("MISSING_API_KEY", "authentication_error")
    assert ("www-authenticate", "Bearer") in known[1]  # type: ignore[operator]
    for method in METHODS[2:]:
        for path in UNKNOWN:
            assert refused(locked, method, path) == known, (method, path)


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
            b"POST /v1/completions HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 99999999999\r\n\r\n{"
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
        peer.sendall(
            b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \r\n\r\n"
        )
        assert peer.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_keys_in_a_file(tiny: Path, tmp_path: Path) -> None:
    """Each key counts; at SIGHUP the file is read again, and running requests go on."""
    file = tmp_path / "keys"
    file.write_text("# of the team\nfirst-k3y\n\n  second-k3y\n")
    options = ("--model", tiny, "-t", "1", "--api-key-file", file)

    def known(server: Server) -> list[str]:
        keys = ("first-k3y", "second-k3y", "third-k3y")
        asked = {key: {"authorization": f"Bearer {key}"} for key in keys}
        answers = {key: http.get(server.url + "/info", headers=asked[key]) for key in keys}
        return [key for key, answer in answers.items() if answer.status_code == 200]

    with serving(*options, step_seconds=0.02) as server:
        assert known(server) == ["first-k3y", "second-k3y"]
        body = {"prompt": "a", "max_tokens": 40, "stream": True, "ignore_eos": True}
        first = {"authorization": "Bearer first-k3y"}
        with http.stream(
            "POST", server.url + "/v1/completions", json=body, headers=first
        ) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            file.write_text("third-k3y\n")
            server.process.send_signal(signal.SIGHUP)
            assert server.wait_for("the keys were read again")["count"] == 1
            assert known(server) == ["third-k3y"]
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert len(rest) > 30

        for bad in ("", "# nothing\n", "two words\n", "\0"):
            file.write_text(bad)
            server.process.send_signal(signal.SIGHUP)
            assert "keys" in server.wait_for("the keys stay as they were")["reason"]
            assert known(server) == ["third-k3y"]
        file.unlink()
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the keys stay as they were")
        assert known(server) == ["third-k3y"]
        server.process.terminate()
        assert server.wait() == 0
        said = "\n".join(server.lines)
        assert not any(key in said for key in ("-k3y", "two words"))


def test_all_keys_are_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Digests are compared by a function of constant time, with all keys, whichever fits."""
    (tmp_path / "keys").write_text("a\nb\nc\n")
    auth = Auth("a", key_file(str(tmp_path / "keys")))
    assert auth.num_keys == 3
    seen: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def counted(a: bytes, b: bytes) -> bool:
        seen.append((len(a), len(b)))
        return compare(a, b)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    for key in (b"a", b"b", b"c"):
        auth.check("/info", [(b"x-api-key", key)])
    with pytest.raises(NotAuthenticatedError):
        auth.check("/info", [(b"x-api-key", b"d")])
    assert seen == [(32, 32)] * 12


def test_key_is_not_told(locked: Server) -> None:
    """Nothing that the worker answers or logs holds the key, right or wrong."""
    for path in set(routed()) - {"/v1/jobs/x/stream"}:
        for key in (RIGHT, {b"authorization": b"Bearer wr0ng-key"}):
            assert KEY not in http.get(locked.url + path, headers=key).text
            assert "wr0ng" not in http.get(locked.url + path, headers=key).text
    http.get(locked.url + "/info", headers={"authorization": "Bearer wr0ng-key"})
    http.get(locked.url + "/info", headers=RIGHT)
    assert not any(KEY in line or "wr0ng" in line or "k3y" in line for line in locked.lines)


def test_whose_what_is_kept_is(tmp_path: Path) -> None:
    """A key's name, or the key; behind a trusted relay the key that the relay was sent."""
    file = tmp_path / "keys"
    file.write_text("k1 name=anna\n")
    auth = Auth("relay", key_file(str(file)))
    trusting = Auth("relay", key_file(str(file)), trusts=True)

    def owner(auth: Auth, key: str, told: str = "") -> str:
        fields = [(b"x-api-key", key.encode()), (b"x-account", told.encode())]
        return auth.owner(fields, auth.check("/v1/completions", fields))

    assert owner(auth, "k1") == owner(trusting, "k1") == "anna"
    assert owner(trusting, "relay", "name=bob") == "bob"
    one, other = owner(trusting, "relay", "owner=1"), owner(trusting, "relay", "owner=2")
    assert len({one, other, owner(trusting, "relay")}) == 3
    assert owner(auth, "relay", "owner=1") == owner(auth, "relay", "owner=2")
