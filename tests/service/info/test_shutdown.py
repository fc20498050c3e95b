"""POST /shutdown: 202, the drain, exit 0; not for pages of other origins, nor for strangers."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.processes import Server, serving
from worker.service.info.shutdown import is_loopback

LONG = {"prompt": "Hello", "max_tokens": 1_900, "ignore_eos": True, "stream": True}


@pytest.mark.parametrize("path", ["/shutdown", "/v1/shutdown", "/v1/admin/shutdown"])
def test_shutdown(tiny: Path, path: str) -> None:
    """The worker says 202 and leaves with 0."""
    with serving("--model", tiny) as server:
        answer = httpx.post(server.url + path)
        assert (answer.status_code, answer.json()["status"]) == (202, "stopping")
        assert server.wait(10) == 0


def test_while_streaming(tiny: Path) -> None:
    """A stream gets the drain time; meanwhile new work is 503 and a second shutdown 202."""
    with serving("--model", tiny, "-c", "2048", "--drain-timeout", "0.5") as server:
        url = server.url + "/v1/completions"
        with httpx.stream("POST", url, json=LONG, timeout=30) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert httpx.post(server.url + "/shutdown").status_code == 202
            server.wait_for("stopping")
            assert httpx.post(server.url + "/shutdown").status_code == 202
            assert server.post({"prompt": "a"}).status_code == 503
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert '"finish_reason":"length"' in rest[-2] or '"error"' in rest[-2]
        assert server.wait(10) == 0


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
        answer = httpx.post(server.url + path, headers={"origin": origin})
        assert answer.status_code == 403
        assert answer.json()["error"]["type"] == "permission_error"
    assert server.health()["status"] == "ok"


def test_own_pages(tiny: Path) -> None:
    """A page that this machine serves may."""
    with serving("--model", tiny) as server:
        headers = {"origin": "http://localhost:3000"}
        assert httpx.post(server.url + "/shutdown", headers=headers).status_code == 202
        assert server.wait(10) == 0


def test_with_a_key(tiny: Path) -> None:
    """With a key set the key decides, not where the request comes from."""
    with serving("--model", tiny, "--api-key", "secret") as server:
        assert httpx.post(server.url + "/shutdown").status_code == 401
        headers = {"authorization": "Bearer secret", "origin": "https://panel.example.com"}
        assert httpx.post(server.url + "/shutdown", headers=headers).status_code == 202
        assert server.wait(10) == 0


def test_get_is_no_shutdown(server: Server) -> None:
    """What a link can do must not stop a worker."""
    assert httpx.get(server.url + "/shutdown").status_code == 405
    assert httpx.head(server.url + "/shutdown").status_code == 405


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
