"""One POST: what is taken for a yes, how long is waited, how much is read."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from tests.support.certificates import certificate, needs_openssl
from tests.support.programs import managers
from tests.support.programs.managers import Manager, manager, says
from worker.lifecycle.http_client import MAX_ANSWER_BYTES, post


@pytest.mark.parametrize("kind", [*managers.REFUSING, *managers.NASTY])
def test_what_is_taken_for_a_yes(kind: str) -> None:
    """Only an answer whose head says 2xx is a yes, whatever follows the head."""
    with manager({**managers.REFUSING, **managers.NASTY}[kind]) as hive:
        try:
            accepted = 200 <= post(hive.url, b"{}") < 300
        except OSError:
            accepted = False
        assert len(hive.bodies) == 1
    assert accepted is (kind in managers.NASTY)
    assert hive.sent < 16 << 20


def test_one_deadline_for_the_whole_answer() -> None:
    """A peer that sends a little now and then does not stretch the time."""

    def drips(self: Manager, peer: socket.socket) -> None:
        while not self.ended.wait(0.05):
            peer.sendall(b"H")

    with manager(drips) as hive, pytest.raises(TimeoutError):
        post(hive.url, b"{}", seconds=0.5)


def test_as_much_is_read_as_may_be() -> None:
    """A head that ends within the limit is taken, one byte more is not."""
    start = b"HTTP/1.1 200 OK\r\n"
    line = b"X: " + b"y" * 30_000 + b"\r\n"
    fitting = start + line + line
    rest = MAX_ANSWER_BYTES - len(fitting) - len(b"Y: \r\n\r\n")
    for more, status in ((0, 200), (1, None)):
        head = fitting + b"Y: " + b"z" * (rest + more) + b"\r\n\r\n"
        with manager(says(head)) as hive:
            if status:
                assert post(hive.url, b"{}") == status
            else:
                with pytest.raises(OSError, match="too long"):
                    post(hive.url, b"{}")


@needs_openssl
def test_https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager with a certificate that is trusted is told, another is not."""
    made, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)

    with manager(managers.accepts, context) as hive:
        url = f"https://localhost:{hive.port}/"
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            post(url, b"{}")
        monkeypatch.setenv("SSL_CERT_FILE", str(made))
        assert post(url, b"{}") == 200
        assert len(hive.bodies) == 1
