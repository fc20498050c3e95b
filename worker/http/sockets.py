"""Sockets that listen, and addresses as they are written."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable
from typing import Any

from worker.errors import BindError, UsageError
from worker.http.unix_sockets import UnixSocket, bind_unix
from worker.values import UNIX, bare

_BACKLOG = 1024
_LOCALHOST = ("127.0.0.1", "::1")
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)
_TRIES = 20  # to find a port that is free in both families


def listen(hosts: str, port: int, mode: int = 0o600) -> list[socket.socket]:
    """Listening sockets, one for each address: `localhost` means IPv4's and IPv6's, because
    clients take the one or the other. Raises BindError, UsageError.

    hosts  separated by commas
    port   the same at each; 0: one that is free
    mode   of sockets that are files
    """
    sockets: list[socket.socket] = []
    for host in hosts.split(","):
        try:
            if host.startswith(UNIX):
                sockets.append(bind_unix(host.removeprefix(UNIX), mode))
            else:
                sockets += _listen(host, port_of(sockets) or port)
        except BaseException:
            close(sockets)
            raise
    return sockets


def close(sockets: Iterable[socket.socket]) -> None:
    """Close them, and remove those that are files."""
    for sock in sockets:
        if isinstance(sock, UnixSocket):
            sock.remove()
        else:
            sock.close()


def port_of(sockets: Iterable[socket.socket]) -> int:
    """The port of all that have one; 0: none has."""
    ports = (s.getsockname()[1] for s in sockets if s.family != socket.AF_UNIX)
    return next(ports, 0)


def _listen(host: str, port: int) -> list[socket.socket]:
    if host.lower().rstrip(".") != "localhost":
        return [bind(host, port)]
    for last in range(_TRIES - 1, -1, -1):
        first = bind(_LOCALHOST[0], port)
        number = first.getsockname()[1]
        try:
            return [first, _bind(socket.AF_INET6, (_LOCALHOST[1], number))]
        except OSError as error:
            # Where a sandbox grants port 0 it grants no second one of the same number.
            if error.errno in _NO_IPV6 or (port == 0 and error.errno == errno.EACCES):
                return [first]
            first.close()
            if port or error.errno != errno.EADDRINUSE or not last:
                raise _refusal(_LOCALHOST[1], number, error) from None
    raise AssertionError


def bind(host: str, port: int) -> socket.socket:
    """One listening TCP socket, of the first address that the host has; else as `listen`. Raises
    UsageError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            bare(host), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise UsageError(
            f"--host {host} is not an address of this machine.",
            hint="Take 127.0.0.1 for this machine alone, 0.0.0.0 for all that reach it.",
        ) from None
    try:
        return _bind(family, address)
    except OSError as error:
        raise _refusal(host, port, error) from None


def url_of_socket(sock: socket.socket, *, secure: bool) -> str:
    """Where it listens, as a client writes it. secure: by TLS, unless it is a file"""
    if sock.family == socket.AF_UNIX:
        return f"{UNIX}{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    url = url_of(host, port)
    return url.replace("http:", "https:", 1) if secure else url


def url_of(host: str, port: int) -> str:
    """http://HOST:PORT; a number of IPv6 gets its brackets."""
    host = bare(host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bind(family: int, address: tuple[Any, ...]) -> socket.socket:
    # asyncio switches Nagle's algorithm off only where the protocol is named; with it the second
    # packet of an answer waits 40 ms for the first one's acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.set_inheritable(False)
    return sock


def _refusal(host: str, port: int, error: OSError) -> BindError:
    hint = "Choose another --port (0 takes a free one) or stop what uses it."
    if error.errno in _NO_IPV6:
        hint = "Choose another --host: 127.0.0.1 for this machine alone, 0.0.0.0 for all."
    elif error.errno in (errno.EACCES, errno.EPERM):
        hint = "Choose another --port: those below 1024 need rights that this user lacks."
    where = url_of(host, port).removeprefix("http://")
    return BindError(f"Cannot listen on {where}: {os.strerror(error.errno or 0)}.", hint=hint)
