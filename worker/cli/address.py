"""A running worker's address, as a command is given it."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import socket
from urllib.parse import urlsplit

import msgspec

from worker.cli.options import settings_from
from worker.errors import UsageError
from worker.isolation.keys import hide_key
from worker.values import UNIX


class Address(msgspec.Struct, frozen=True):
    """Where a worker listens, a URL without a slash at its end; and the key that it asks for."""

    url: str
    key: str | None

    def connection(self, seconds: float) -> http.client.HTTPConnection:
        """One that is not open yet; seconds: between two answers of the other side."""
        scheme, _, place = self.url.partition(":")
        if self.url.startswith(UNIX):
            return _UnixConnection(place, seconds)
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        return kind(place.removeprefix("//").partition("/")[0], timeout=seconds)

    @property
    def prefix(self) -> str:
        """In front of all paths there."""
        return "" if self.url.startswith(UNIX) else urlsplit(self.url).path


class _UnixConnection(http.client.HTTPConnection):
    """To a socket that is a file."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def address_from(arguments: argparse.Namespace) -> Address:
    """What a command was given: a key, which is hidden now, and `url`: `http://HOST:PORT/PREFIX`,
    also without scheme, port or prefix, `https://`, or `unix:PATH`. Raises UsageError."""
    key = next(iter(settings_from(arguments).api_keys), None)
    hide_key()
    text: str = arguments.url
    if text.startswith(UNIX) and text != UNIX:
        return Address(text, key)
    text = text.removeprefix(UNIX)
    with contextlib.suppress(ValueError):  # as of a wrong port
        parts = urlsplit(text if "://" in text else f"http://{text}")
        url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        is_plain = url.isascii() and url.isprintable() and not {" ", "@"} & set(url)
        if is_plain and parts.hostname and parts.scheme in ("http", "https") and parts.port != 0:
            return Address(url, key)
    hint = "Write http://HOST:PORT, https://HOST:PORT or unix:PATH."
    raise UsageError(f"{text!r} is no worker's address.", hint=hint)
