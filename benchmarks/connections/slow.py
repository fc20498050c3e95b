"""Connections that keep a server busy with next to nothing."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from types import TracebackType

_HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
# What each says at first; then a byte a second. The last asks for much and reads nothing.
FIRST_WORDS = {
    "head": _HEAD + b"X-Slow: ",
    "body": _HEAD + b"Content-Length: 100000\r\n\r\n{",
    "reader": b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2,
}
_PERIOD_S = 1.0
_SLICES = 20  # so that they do not all speak at once


class SlowConnections:
    """So many of them, a third of each kind, while the block runs; who is closed comes again."""

    def __init__(self, host: str, port: int, count: int) -> None:
        self._address = (host, port)
        self._kinds = list(itertools.islice(itertools.cycle(FIRST_WORDS), count))
        self._open: dict[int, socket.socket] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._drip)
        self.num_closed = 0

    def __enter__(self) -> SlowConnections:
        for number in range(len(self._kinds)):
            self._connect(number)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        for sock in self._open.values():
            sock.close()

    def _connect(self, number: int) -> None:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(self._address)
        sock.sendall(FIRST_WORDS[self._kinds[number]])
        sock.setblocking(False)
        self._open[number] = sock

    def _drip(self) -> None:
        for turn in itertools.count():
            if self._stopping.wait(_PERIOD_S / _SLICES):
                return
            for number in range(turn % _SLICES, len(self._kinds), _SLICES):
                if self._kinds[number] == "reader":
                    continue
                try:
                    self._open[number].send(b"a")
                except OSError:
                    self.num_closed += 1
                    self._open.pop(number).close()
                    with contextlib.suppress(OSError):
                        self._connect(number)
