"""Pool managers of all kinds, on a real socket: what they answer to a worker's reports."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import ssl
import threading
from collections.abc import Callable, Generator
from typing import Any

from tests.support import http
from tests.support.programs.processes import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def reply(status: int, *headers: str, body: bytes = b"") -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status} X", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def received(peer: socket.socket) -> bytes:
    """What has come. Raises ConnectionError where nothing more will."""
    if not (data := peer.recv(65536)):
        raise ConnectionError
    return data


class Manager:
    """Accepts connections and lets `answer` loose on each, after the request was read.

    bodies    what was posted, as JSON, in order
    paths     request lines' paths, in order
    heads     the request heads as they came
    sent      bytes that were taken off our hands
    """

    def __init__(
        self,
        answer: Callable[[Manager, socket.socket], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._answer = answer
        self._tls = tls
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.heads: list[str] = []
        self.health: list[int] = []
        self.sent = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                peer = self._socket.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.suppress(OSError))
            stack.enter_context(peer)
            if self._tls is not None:
                peer = stack.enter_context(self._tls.wrap_socket(peer, server_side=True))
            data = b""
            while b"\r\n\r\n" not in data:
                data += received(peer)
            head, _, body = data.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
            while len(body) < int(fields["Content-Length"]):
                body += received(peer)
            self.heads.append(head.decode())
            self.paths.append(head.decode().split(" ")[1])
            self.bodies.append(json.loads(body))
            self._answer(self, peer)

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        """The bodies, once there are so many."""
        until(lambda: len(self.bodies) >= count)
        return self.bodies

    def close(self) -> None:
        """Listen no more and let go of who waits."""
        self.ended.set()
        # accept() in another thread does not notice a close alone.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextlib.contextmanager
def manager(
    answer: Callable[[Manager, socket.socket], None], tls: ssl.SSLContext | None = None
) -> Generator[Manager]:
    """A manager that is gone afterwards; with `tls` it speaks HTTPS."""
    running = Manager(answer, tls)
    try:
        yield running
    finally:
        running.close()


def says(data: bytes) -> Callable[[Manager, socket.socket], None]:
    """Answers always the same."""
    return lambda _, peer: peer.sendall(data)


accepts = says(OK)


def accepts_after_looking(self: Manager, peer: socket.socket) -> None:
    """Asks the worker for its health before it answers."""
    self.health.append(http.get(self.bodies[-1]["url"] + "/health").status_code)
    peer.sendall(OK)


def hangs(self: Manager, _: socket.socket) -> None:
    """Takes the request and says nothing."""
    self.ended.wait()


def pours(start: bytes, chunk: bytes) -> Callable[[Manager, socket.socket], None]:
    """Begins an answer and goes on for a gigabyte."""

    def answer(self: Manager, peer: socket.socket) -> None:
        peer.sendall(start)
        while self.sent < 1 << 30:
            self.sent += peer.send(chunk)

    return answer


BOMB = gzip.compress(bytes(64 << 20))

# Those that a worker cannot take for a yes.
REFUSING: dict[str, Callable[[Manager, socket.socket], None]] = {
    "403": says(reply(403)),
    "500": says(reply(500)),
    "redirect": says(reply(307, "Location: /elsewhere")),
    "hangs up": lambda _, peer: peer.close(),
    "no HTTP": says(b"SSH-2.0-nonsense\r\n"),
    "endless head": pours(b"HTTP/1.1 200 OK\r\n", b"X: " + b"y" * 60_000 + b"\r\n"),
    "endless line": pours(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 65_536),
}

# A yes with something nasty behind it.
NASTY: dict[str, Callable[[Manager, socket.socket], None]] = {
    "a gigabyte": pours(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n", bytes(65_536)),
    "endless chunks": pours(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + bytes(65_536)
    ),
    "gzip bomb": says(reply(200, "Content-Encoding: gzip", body=BOMB)),
    "too short": says(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"),
}
