"""Addresses of pictures: where they may lead, how much and how long is read."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.http import answering
from worker.errors import RequestError
from worker.lifecycle import addresses
from worker.lifecycle.addresses import MediaAddresses
from worker.limits import FETCH_TIME, FETCHED
from worker.settings import Settings

DATA = b"a picture"
Answer = Callable[[BaseHTTPRequestHandler], None]


def says(status: int, body: bytes, **headers: str) -> Answer:
    """A whole answer."""

    def answer(self: BaseHTTPRequestHandler) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    return answer


@contextlib.contextmanager
def site(**pages: Answer) -> Generator[int]:
    """A server on loopback; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(OSError):
                pages[self.path.partition("?")[0].strip("/")](self)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing."""

    with answering(Handler) as port:
        yield port


def of(*hosts: tuple[str, int], folder: Path | None = None) -> MediaAddresses:
    media_dir = None if folder is None else str(folder.resolve())
    return MediaAddresses(Settings(fetch_images=hosts, media_dir=media_dir))


def refused(found: MediaAddresses, address: str) -> str:
    """Why it is not read."""
    assert found.allows(address)
    with pytest.raises(RequestError) as caught:
        found.read(address)
    assert (caught.value.http_status, caught.value.code) == FETCHED.answer == FETCH_TIME.answer
    return caught.value.message


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [
        ("http://h.example/a.png", True),
        ("https://H.example:443/a.png?b=c", True),
        ("http://h.example:81/a.png", False),
        ("https://h.example:80/a.png", False),
        ("http://a.h.example/", False),
        ("http://h.example.evil.example/", False),
        ("http://u:p@evil.example/h.example", False),
        ("http://h.example@evil.example/", False),
        ("http://[::1]:8000/", True),
        ("http://[::1]/", False),
        ("http://2130706433/", False),
        ("ftp://h.example/", False),
        ("http://[/", False),
        ("http://h.example:99999/", False),
        ("file:///a.png", False),
    ],
)
def test_which_are_allowed(address: str, is_allowed: bool) -> None:
    """Hosts are named as they stand; a port counts where it was named, or is the scheme's own."""
    found = of(("h.example", 0), ("::1", 8000))
    assert found.allows(address) is is_allowed
    assert not of().allows(address)


def test_what_is_fetched() -> None:
    """The bytes, once; a redirect is followed to a host that may be asked."""
    pages: dict[str, Answer] = {
        "a": says(200, DATA), "b": says(302, b"", Location="/a"), "c": says(404, b"no"),
        "d": says(302, b"", Location="http://localhost/a"), "e": says(302, b"", Location="/e"),
        "f": says(302, b"", Location="file:///etc/passwd"),
        "g": says(200, DATA, **{"Content-Length": "99"}),
    }  # fmt: skip
    with site(**pages) as port:
        found = of(("127.0.0.1", port))
        url = f"http://127.0.0.1:{port}"
        assert found.read(f"{url}/a") == found.read(f"{url}/b") == DATA
        assert "the answer is 404" in refused(found, f"{url}/c?token=hush")
        assert "hush" not in refused(found, f"{url}/c?token=hush")
        for page in "df":
            assert "it leads to another host" in refused(found, f"{url}/{page}")
        assert "it leads on and on" in refused(found, f"{url}/e")
        assert "ended too early" in refused(found, f"{url}/g")
    assert found.read(f"{url}/a") == DATA
    assert "refused" in refused(of(("127.0.0.1", port)), f"{url}/a")


@pytest.mark.parametrize(
    "number",
    ["127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "0.0.0.0", "::1", "fe80::1",
     "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "224.0.0.1", "100.64.0.1"],
)  # fmt: skip
def test_names_that_lead_inside(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked; the name is looked up once, so that it cannot lead elsewhere afterwards."""
    asked: list[str] = []

    def resolved(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        public = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", port))
        return [public, (socket.AF_INET, socket.SOCK_STREAM, 6, "", (number, port))]

    def connected(*_: Any) -> None:
        pytest.fail("it was asked")

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(addresses, "get", connected)
    said = refused(of(("h.example", 0)), "http://h.example/a")
    assert "h.example leads to" in said
    assert "no public address" in said
    assert asked == ["h.example"]


def test_as_much_is_read_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """By all that a request names together; a peer that sends a little now and then ends too."""
    monkeypatch.setattr(addresses, "FETCHED", replace(FETCHED, most=1))
    half = b"x" * 600_000

    def drips(self: BaseHTTPRequestHandler) -> None:
        says(200, b"", **{"Content-Length": "100"})(self)
        while True:
            self.wfile.write(b"x")
            self.wfile.flush()
            ended.wait(0.05)

    def pours(self: BaseHTTPRequestHandler) -> None:
        self.send_response(200)
        self.end_headers()
        while True:
            self.wfile.write(half)

    ended = threading.Event()
    with site(a=says(200, half), b=says(200, half), drips=drips, pours=pours) as port:
        url, host = f"http://127.0.0.1:{port}", ("127.0.0.1", port)
        found = of(host)
        assert found.read(f"{url}/a") == half
        assert "more than 1 MB" in refused(found, f"{url}/b")
        assert "more than 1 MB" in refused(of(host), f"{url}/pours")
        monkeypatch.setattr(addresses, "FETCH_TIME", replace(FETCH_TIME, most=1))
        assert "timed out" in refused(of(host), f"{url}/drips")
    ended.set()


def test_files(tmp_path: Path) -> None:
    """Below the folder, also by a link inside; no link and no path leads out of it."""
    folder = tmp_path / "media"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a b.png").write_bytes(DATA)
    (tmp_path / "secret").write_bytes(b"hush")
    (folder / "inside").symlink_to("deep/a b.png")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    found = of(folder=folder)
    for good in ("deep/a%20b.png", "inside", f"{folder}/deep/a b.png", "deep/../inside"):
        assert found.read(f"file://{good}") == DATA
    for out in ("out", "up/secret", "../secret", "%2e%2e/secret", "/etc/passwd", "/", "../gone"):
        assert "not below the folder" in refused(found, f"file://{out}")
    for none in ("gone", "pipe", "deep", "", "a%00b", "x" * 5000):
        assert "there is no such file" in refused(found, f"file://{none}")
