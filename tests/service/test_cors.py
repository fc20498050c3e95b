"""Pages of other origins read nothing, unless their origin is named."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from tests.support import http
from tests.support.programs.processes import Server, serving, starting

KEY = "k3y"
NAMED, OTHER = "https://chat.example", "https://evil.example"
OTHERS = (OTHER, NAMED + ".evil.example", NAMED + ":8443", "http://chat.example", "null", "*", "")
RIGHT = {"authorization": f"Bearer {KEY}"}
ASKS = {"access-control-request-method": "POST"}
BODY = {"prompt": "a", "max_tokens": 1}


@pytest.fixture(scope="module")
def named(tiny: Path) -> Generator[Server]:
    """A worker that lets pages of two origins read."""
    options = ("--model", tiny, "-t", "1", "--api-key", KEY)
    with serving(*options, "--cors", f"http://localhost:3000,{NAMED}") as server:
        yield server


def cors_of(answer: httpx.Response) -> dict[str, str]:
    """What a browser decides by."""
    return {
        name: value
        for name, value in answer.headers.items()
        if name.startswith("access-control-")
    }  # fmt: skip


def is_readable(answer: httpx.Response, origin: str = NAMED) -> bool:
    """Whether the page that asked may read it, whatever its status; never with credentials."""
    assert "access-control-allow-credentials" not in answer.headers
    return answer.headers.get("access-control-allow-origin") == origin


def test_off_unless_asked(server: Server) -> None:
    """Without the option no answer has a word on it, a preflight's neither."""
    for method in ("OPTIONS", "GET", "POST"):
        answer = http.request(
            method, server.url + "/v1/models", headers={"origin": NAMED, **ASKS}
        )  # fmt: skip
        assert cors_of(answer) == {}
        assert "vary" not in answer.headers


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/health", "/no/such/path", "/"])
def test_preflight(named: Server, path: str) -> None:
    """A browser asks without the key whether it may ask; of a named origin it may."""
    wanted = "authorization,content-type,x-stainless-os"
    asked = {"origin": NAMED, **ASKS, "access-control-request-headers": wanted}
    answer = http.request("OPTIONS", named.url + path, headers=asked)
    assert (answer.status_code, answer.content) == (200, b"")
    assert is_readable(answer)
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert (
        answer.headers["access-control-allow-headers"]
        == "authorization,content-type,x-stainless-os"
    )
    assert set(answer.headers["vary"].split(", ")) == {"origin", "access-control-request-headers"}


@pytest.mark.parametrize("origin", OTHERS)
def test_other_origins(named: Server, origin: str) -> None:
    """Of another origin it may not, with the key or without: each letter counts."""
    for key in ({}, RIGHT):
        headers = {"origin": origin, **ASKS, **key}
        for method in ("OPTIONS", "GET"):
            answer = http.request(method, named.url + "/v1/models", headers=headers)
            assert cors_of(answer) == {}
            assert answer.headers["vary"] == "origin"
            if origin and method == "OPTIONS":
                assert (answer.status_code, answer.content) == (200, b"")


def test_a_preflight_alone_passes_without_the_key(named: Server) -> None:
    """OPTIONS that asks for no method is a request like others; nothing else becomes open."""
    answer = http.request("OPTIONS", named.url + "/v1/models", headers={"origin": NAMED})
    assert answer.status_code == 401
    for method in ("GET", "POST", "HEAD", "DELETE"):
        answer = http.request(
            method, named.url + "/v1/models", headers={"origin": NAMED, **ASKS}
        )  # fmt: skip
        assert answer.status_code == 401
        assert is_readable(answer)


def test_every_answer_can_be_read(named: Server) -> None:
    """Answers, streams and errors: a page sees why something failed."""
    page = {"origin": NAMED, **RIGHT}
    for path, body, status in (
        ("/v1/completions", BODY, 200),
        ("/v1/completions", {**BODY, "stream": True}, 200),
        ("/v1/completions", {**BODY, "max_tokens": "x"}, 400),
        ("/v1/messages", {}, 400),
        ("/no/such/path", {}, 404),
    ):
        answer = http.post(named.url + path, json=body, headers=page)
        assert answer.status_code == status
        assert is_readable(answer), path
        exposed = answer.headers["access-control-expose-headers"]
        assert {"x-request-id", "retry-after"} <= set(exposed.split(", "))
    assert is_readable(http.get(named.url + "/health", headers={"origin": NAMED}))
    local = http.get(named.url + "/info", headers={"origin": "http://localhost:3000", **RIGHT})
    assert is_readable(local, "http://localhost:3000")


def test_while_it_is_busy_or_loads(tiny: Path, tmp_path: Path) -> None:
    """So it is with what is answered before the routes: a full queue, a model that loads."""
    loaded = tmp_path / "loaded"
    options = ("--model", tiny, "-t", "1", "-np", "1", "--queue-size", "0", "--cors", NAMED)
    with starting(*options, env={"LOADED": str(loaded)}, step_seconds=0.02) as server:
        loading = http.get(server.url + "/v1/models", headers={"origin": NAMED})
        assert loading.status_code == 503
        assert is_readable(loading)
        asked = http.request("OPTIONS", server.url + "/x", headers={"origin": NAMED, **ASKS})
        assert asked.status_code == 200
        loaded.touch()
        server.wait_until_ready()
        long = {**BODY, "max_tokens": 1000, "stream": True, "ignore_eos": True}
        with http.stream("POST", server.url + "/v1/completions", json=long):
            server.wait_until(slots_processing=1)
            full = http.post(server.url + "/v1/completions", json=BODY, headers={"origin": NAMED})
            assert full.status_code == 429
            assert is_readable(full)
