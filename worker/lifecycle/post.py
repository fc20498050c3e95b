"""One POST to an address that nobody vouches for: bounded in time and in bytes."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from urllib.parse import urlsplit

TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 1 << 16


class _Answer(io.RawIOBase):
    """What a peer sends, until the deadline and up to MAX_ANSWER_BYTES."""

    def __init__(self, channel: _Channel) -> None:
        super().__init__()
        self._channel = channel
        self._left = MAX_ANSWER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._left:
            raise OSError("the answer's head is too long")
        count = self._channel.ready().recv_into(buffer, min(len(buffer), self._left))
        self._left -= count
        return count


class _Channel:
    """A connection with one deadline for all that is done with it, as http.client wants one."""

    def __init__(self, host: str, port: int, *, secure: bool, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._socket: socket.socket | None = None
        error: OSError = OSError("the name has no address")
        for family, kind, number, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        ):
            sock = socket.socket(family, kind, number)
            self._socket = sock
            try:
                self.ready().connect(address)
                if secure:
                    context = ssl.create_default_context()
                    self._socket = context.wrap_socket(sock, server_hostname=host)
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
        return io.BufferedReader(_Answer(self))

    def close(self) -> None:
        """Close the connection; safe to call again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def post(url: str, body: bytes, seconds: float = TIMEOUT_S) -> int:
    """POST JSON; the status of the answer, of which only the head is read.

    Nothing is decompressed, no redirect and no proxy is followed. Raises OSError with a reason when
    there is no answer. Looking up a host's name has the system's own time limit.
    """
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    host = parts.hostname or ""
    channel = _Channel(host, port, secure=secure, seconds=seconds)
    try:
        connection = http.client.HTTPConnection(host, port)
        connection.sock = channel  # type: ignore[assignment]
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Content-Type": "application/json", "Connection": "close"}
        connection.request("POST", target, body, headers)
        return connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError(f"the answer is not HTTP ({type(error).__name__})") from None
    finally:
        channel.close()


def own_address(url: str) -> str:
    """The address under which `url`'s host sees this machine. Raises OSError."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    family, kind, number, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, number) as sock:
        sock.connect(address)  # a datagram socket sends nothing for that
        return str(sock.getsockname()[0])


def shown(url: str) -> str:
    """`url` for logs: without the query, which may hold a token."""
    return url.partition("?")[0].partition("#")[0]
