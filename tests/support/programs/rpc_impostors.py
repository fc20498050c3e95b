"""Servers that are no usable RPC servers of llama.cpp, each in its own way."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

Behaviour = Callable[[socket.socket], None]
HELLO_REQUEST, COUNT_REQUEST = 1 + 8 + 24, 1 + 8
GREETING = struct.pack("<QBBBx24x", 28, 7, 0, 0)


def hello(line: socket.socket) -> None:
    """Answer the greeting."""
    assert len(line.recv(HELLO_REQUEST, socket.MSG_WAITALL)) == HELLO_REQUEST
    line.sendall(GREETING)


def speaks(major: int, minor: int) -> Behaviour:
    """A server of another version."""

    def behave(line: socket.socket) -> None:
        line.recv(HELLO_REQUEST, socket.MSG_WAITALL)
        line.sendall(struct.pack("<QBBBx24x", 28, major, minor, 0))

    return behave


def count(number: int) -> Behaviour:
    """A server that says how many devices it has, and no more."""

    def behave(line: socket.socket) -> None:
        hello(line)
        line.recv(COUNT_REQUEST, socket.MSG_WAITALL)
        line.sendall(struct.pack("<QI", 4, number))
        line.recv(1)

    return behave


def silent(line: socket.socket) -> None:
    """Reads until the other side leaves."""
    while line.recv(4096):
        pass


def closes(line: socket.socket) -> None:
    """Says good-bye at once."""


def says(answer: bytes) -> Behaviour:
    """Answers anything with the same, then is silent."""

    def behave(line: socket.socket) -> None:
        line.recv(4096)
        line.sendall(answer)
        silent(line)

    return behave


def drips(line: socket.socket) -> None:
    """Sends the right answer, so slowly that no byte is late and the whole is."""
    for byte in GREETING:
        line.sendall(bytes([byte]))
        time.sleep(0.05)


@contextmanager
def listening(*behaviours: Behaviour) -> Generator[str]:
    """The address of a server that treats one connection after the other so; the last way stays."""
    with socket.create_server(("127.0.0.1", 0)) as sock:

        def serve() -> None:
            number = 0
            while True:
                try:
                    line, _ = sock.accept()
                except OSError:
                    return
                with line, suppress(OSError):  # the other side may leave
                    behaviours[min(number, len(behaviours) - 1)](line)
                number += 1

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{sock.getsockname()[1]}"
        sock.shutdown(socket.SHUT_RDWR)


HTTP = says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
