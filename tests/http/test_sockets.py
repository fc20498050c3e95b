"""The sockets that a server listens on."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import httpx
import pytest

from tests.support.programs.processes import serving
from worker.errors import BindError
from worker.http.sockets import bind, listen, url_of


def has_ipv6() -> bool:
    """Whether this machine has the address ::1."""
    try:
        bind("::1", 0).close()
    except BindError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")


@needs_ipv6
def test_localhost_is_both() -> None:
    """`localhost` listens on IPv4's and IPv6's loopback, with one port."""
    sockets = listen("LocalHost", 0)
    assert [sock.getsockname()[0] for sock in sockets] == ["127.0.0.1", "::1"]
    ports = {sock.getsockname()[1] for sock in sockets}
    assert len(ports) == 1
    for sock in sockets:
        sock.close()
    other = bind("::1", 0)  # what somebody else has is named
    port = other.getsockname()[1]
    with pytest.raises(BindError, match=rf"Cannot listen on \[::1\]:{port}: Address already"):
        listen("localhost", port)
    other.close()


def test_localhost_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no IPv6 it is the other one alone, and ::1 is an error of binding."""
    real = socket.socket

    def made(family: int, *more: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "not supported")
        return real(family, *more)

    monkeypatch.setattr(socket, "socket", made)
    (alone,) = listen("localhost", 0)
    assert alone.getsockname()[0] == "127.0.0.1"
    alone.close()
    with pytest.raises(BindError, match=r"Choose another --host"):
        listen("::1", 0)


@needs_ipv6
@pytest.mark.parametrize("host", ["[::1]", "::1", "localhost"])
def test_hosts_as_people_write_them(host: str, tiny: Path) -> None:
    """Brackets around a number of IPv6 are taken, and both families answer where both are meant."""
    with serving("--model", tiny, "--host", host, "--ctx-size", "512", "-np", "1") as server:
        port = int(server.url.rpartition(":")[2])
        assert httpx.get(f"http://[::1]:{port}/health").status_code == 200
        if host == "localhost":
            assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200


def test_addresses() -> None:
    """A number of IPv6 is written with its brackets, once."""
    assert url_of("[::1]", 1) == url_of("::1", 1) == "http://[::1]:1"
    assert url_of("localhost", 1) == "http://localhost:1"
