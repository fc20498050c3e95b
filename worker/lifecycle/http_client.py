"""One request to an address that nobody vouches for: bounded in time and in bytes."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 1 << 16


class GotAnswer(NamedTuple):
    """status, where a redirect leads, and the body."""

    status: int
    location: str
    body: bytes


class _Answer(io.RawIOBase):
    """What a peer sends, until the deadline and up to `most` bytes."""

    def __init__(self, channel: _Channel, most: int) -> None:
        super().__init__()
        self._channel = channel
        self._left = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._left:
            raise OSError("the answer is too long")
        count = self._channel.ready().recv_into(buffer, min(len(buffer), self._left))
        self._left -= count
        return count


class Place(NamedTuple):
    """Where a URL leads. addresses: of the host, as `socket.getaddrinfo` gives them"""

    host: str
    port: int
    secure: bool
    target: str
    addresses: list[Any]


class _Channel:
    """A connection to a place, with one deadline for all that is done with it, as http.client wants
    one. most: bytes of the answer"""

    def __init__(self, place: Place, most: int, *, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._socket: socket.socket | None = None
        self._most = most
        error: OSError = OSError("the name has no address")
        for family, kind, number, _, address in place.addresses:
            sock = socket.socket(family, kind, number)
            self._socket = sock
            try:
                self.ready().connect(address)
                if place.secure:
                    context = ssl.create_default_context()
                    self._socket = context.wrap_socket(sock, server_hostname=place.host)
                return
            except OSError as failure:
                self.close()
                error = failure
        raise error

    def ready(self) -> socket.socket:
        """The socket, with as much time as is left. Raises TimeoutError when none is."""
        left = self._deadline - time.monotonic()
        if self._socket is None or left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)
        return self._socket

    def sendall(self, data: bytes) -> None:
        self.ready().sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Answer(self, self._most))

    def close(self) -> None:
        """Close the connection; safe to call again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def place_of(url: str) -> Place:
    """Raises OSError. Looking up a host's name has the system's own time limit."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    host = parts.hostname or ""
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return Place(host, port, secure, quote(target, safe="%/:?[]@!$&'()*+,;=~"), addresses)


def post(url: str, body: bytes, seconds: float = TIMEOUT_S) -> int:
    """POST JSON; the status of the answer, of which only the head is read.

    Nothing is decompressed, no redirect and no proxy is followed. Raises OSError with a reason when
    there is no answer.
    """
    place = place_of(url)
    channel = _Channel(place, MAX_ANSWER_BYTES, seconds=seconds)
    try:
        return _exchange(channel, place, "POST", body).status
    except http.client.HTTPException as error:
        raise OSError(f"the answer is not HTTP ({type(error).__name__})") from None
    finally:
        channel.close()


def get(place: Place, most: int, seconds: float) -> GotAnswer:
    """GET; the answer with `most` bytes of its body at most, and one more where there are more.
    Raises OSError as `post`."""
    channel = _Channel(place, most + MAX_ANSWER_BYTES, seconds=seconds)
    try:
        answer = _exchange(channel, place, "GET", None)
        body = answer.read(most + 1)
        if answer.length and len(body) <= most:
            raise OSError("the answer ended too early")
        return GotAnswer(answer.status, answer.headers.get("Location", ""), body)
    except http.client.HTTPException as error:
        raise OSError(f"the answer is not HTTP ({type(error).__name__})") from None
    finally:
        channel.close()


def _exchange(
    channel: _Channel, place: Place, method: str, body: bytes | None
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(place.host, place.port)
    connection.sock = channel  # type: ignore[assignment]
    headers = {"Connection": "close"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection.request(method, place.target, body, headers)
    # The connection's own way closes the channel before the body is read.
    answer = http.client.HTTPResponse(channel, method=method)  # type: ignore[arg-type]
    answer.begin()
    return answer


def own_address(url: str) -> str:
    """The address under which `url`'s host sees this machine. Raises OSError."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    family, kind, number, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, number) as sock:
        sock.connect(address)  # a datagram socket sends nothing for that
        return str(sock.getsockname()[0])


def without_query(url: str) -> str:
    """`url` for logs: without the query, which may hold a token."""
    return url.partition("?")[0].partition("#")[0]
