"""POST /shutdown: 202, the drain, exit 0; not for pages of other origins, nor for strangers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import http
from tests.support.programs.processes import Server, serving, side_by_side
from worker.http.hosts import is_loopback

LONG = {"prompt": "Hello", "max_tokens": 1_900, "ignore_eos": True, "stream": True}


def test_shutdown(tiny: Path) -> None:
    """The worker says 202 and leaves with 0: on each path, for its own machine's pages too.

    With a key set the key decides, not where the request comes from.
    """

    def check(case: tuple[str, list[str], dict[str, str]]) -> None:
        path, options, headers = case
        with serving("--model", tiny, "-t", "1", *options) as server:
            if options:
                assert http.post(server.url + path).status_code == 401
            answer = http.post(server.url + path, headers=headers)
            assert (answer.status_code, answer.json()["status"]) == (202, "stopping")
            assert server.wait() == 0

    right = {"authorization": "Bearer secret", "origin": "https://panel.example.com"}
    cases: list[tuple[str, list[str], dict[str, str]]] = [
        ("/shutdown", [], {}),
        ("/v1/shutdown", [], {"origin": "http://localhost:3000"}),
        ("/v1/admin/shutdown", ["--api-key", "secret"], right),
    ]
    side_by_side(check, cases)


def test_while_streaming(tiny: Path) -> None:
    """A stream gets the drain time; meanwhile new work is 503 and a second shutdown 202."""
    options = ("--model", tiny, "-c", "2048", "-t", "1", "--drain-timeout", "1")
    with serving(*options, step_seconds=0.02) as server:
        url = server.url + "/v1/completions"
        with http.stream("POST", url, json=LONG) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert http.post(server.url + "/shutdown").status_code == 202
            server.wait_for("stopping")
            assert http.post(server.url + "/shutdown").status_code == 202
            assert server.post({"prompt": "a"}).status_code == 503
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert '"error"' in rest[-2]
        assert server.wait() == 0


@pytest.mark.parametrize(
    "origin",
    [
        "https://example.com",
        "null",
        "",
        "http://127.0.0.1.example.com",
        "http://localhost.example.com:80",
        "http://[::1",
        "file://",
        "http://169.254.169.254",
    ],
)
def test_pages_of_other_origins(server: Server, origin: str) -> None:
    """A browser's cross-site POST is 403, and the worker goes on."""
    for path in ("/shutdown", "/v1/shutdown", "/v1/admin/shutdown"):
        answer = http.post(server.url + path, headers={"origin": origin})
        assert answer.status_code == 403
        assert answer.json()["error"]["type"] == "permission_error"
    assert server.health()["status"] == "ok"


def test_get_is_no_shutdown(server: Server) -> None:
    """GET and HEAD do not stop a worker: a link could do that."""
    assert http.get(server.url + "/shutdown").status_code == 405
    assert http.head(server.url + "/shutdown").status_code == 405


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1", False),
        ("localhost.example.com", False),
        ("", False),
    ],
)
def test_loopback(host: str, own: bool) -> None:
    """Only addresses that never leave the machine are its own."""
    assert is_loopback(host) is own
