"""One worker by HTTPS and on a socket that is a file."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import stat
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support import http
from tests.support.certificates import certificate, needs_openssl
from tests.support.programs.managers import accepts, manager
from tests.support.programs.processes import Server, ended, serving

pytestmark = needs_openssl


class _Both(NamedTuple):
    """A worker that listens on both. made: certificate and key; told: what its manager was"""

    server: Server
    path: Path
    made: tuple[Path, Path]
    told: dict[str, object]

    def over_file(self) -> httpx.Client:
        return httpx.Client(
            transport=httpx.HTTPTransport(uds=str(self.path)), base_url="http://localhost"
        )


@pytest.fixture(scope="module")
def both(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[_Both]:
    folder = tmp_path_factory.mktemp("tls")
    made, path = certificate(folder), folder / "worker.sock"
    with manager(accepts) as hive, serving(
        "--model", tiny, "--host", f"127.0.0.1,unix:{path}", "--ssl-cert-file", made[0],
        "--ssl-key-file", made[1], "--socket-mode", "660", "--callback-url", hive.url,
    ) as server:  # fmt: skip
        server.wait_for("the manager knows that the worker is ready")
        yield _Both(server, path, made, hive.bodies[0])


def _peer_certificate(both: _Both, most: ssl.TLSVersion) -> tuple[str, bytes]:
    """The version that was agreed on, and the certificate that was shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = most
    port = urlsplit(both.server.url).port
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        context.wrap_socket(plain) as secure,
    ):
        return str(secure.version()), secure.getpeercert(True) or b""


def test_the_address_is_the_right_one(both: _Both) -> None:
    """The lines `listening` and `ready`, /info, /props and the manager name the https address and
    its port, on whichever of them they are asked."""
    url = both.server.url
    assert url.startswith("https://127.0.0.1:")
    assert url in both.server.logged("listening")["url"]
    assert both.told["url"] == both.told["uri"] == url
    with both.over_file() as file:
        for client, base in ((http.client, url), (file, "")):
            assert client.get(f"{base}/health").json()["status"] == "ok"
            assert client.get(f"{base}/props").json()["url"] == url
            info = client.get(f"{base}/info").json()
            assert info["url"] == url
            assert info["port"] == urlsplit(url).port == both.told["port"]


def test_answers_are_the_same(both: _Both) -> None:
    """A stream over each ends whole, with the same text; a large body arrives."""
    body = {"prompt": "a b", "max_tokens": 8, "temperature": 0, "stream": True}
    secure = http.post(f"{both.server.url}/v1/completions", json=body).text
    with both.over_file() as file:
        plain = file.post("/v1/completions", json=body).text
        large = file.post("/v1/completions", content=b"[" + b" " * 3_000_000)
    assert secure.endswith("data: [DONE]\n\n")
    assert plain.endswith("data: [DONE]\n\n")

    def texts(events: str) -> str:
        lines = [line[6:] for line in events.splitlines() if line.startswith("data: {")]
        return "".join(choice["text"] for line in lines for choice in json.loads(line)["choices"])

    assert texts(secure) == texts(plain)
    over_tls = http.post(f"{both.server.url}/v1/completions", content=b"[" + b" " * 3_000_000)
    assert over_tls.status_code == large.status_code == 400


def test_tls_has_a_least_version(both: _Both) -> None:
    """TLS 1.2 and 1.3 are spoken, older versions and plain HTTP are not."""
    assert _peer_certificate(both, ssl.TLSVersion.TLSv1_2)[0] == "TLSv1.2"
    assert _peer_certificate(both, ssl.TLSVersion.TLSv1_3)[0] == "TLSv1.3"
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol|version"):
        _peer_certificate(both, ssl.TLSVersion.TLSv1_1)
    with pytest.raises(httpx.TransportError):
        http.get(both.server.url.replace("https:", "http:") + "/health")


def test_a_refusal_reaches_who_still_sends(both: _Both) -> None:
    """An answer that comes before the body is whole arrives, by TLS too, and then its end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    port = urlsplit(both.server.url).port
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000000\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        context.wrap_socket(plain) as secure,
    ):
        secure.sendall(head + b"x" * 100_000)
        answer = secure.recv(4096)
        secure.sendall(b"x" * 100_000)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert both.server.health()["status"] == "ok"


def test_origins_and_hosts_hold(both: _Both) -> None:
    """Pages of other origins and unknown names are refused over both; what only this machine may
    ask for may be asked for over the file."""
    with both.over_file() as file:
        for client, base in ((http.client, both.server.url), (file, "")):
            foreign = {"origin": "https://evil.example"}
            assert client.post(f"{base}/sleep?mode=x", headers=foreign).status_code == 403
            named = client.post(f"{base}/sleep?mode=x", headers={"host": "evil.example"})
            assert named.json()["error"]["code"] == "unknown_host"
        assert file.post("/sleep?mode=x").json()["error"]["param"] == "mode"


def test_the_file_has_its_mode(both: _Both, tiny: Path) -> None:
    """--socket-mode, and 600 where it is not said, whatever the umask is; a socket on which a
    worker listens is refused, and stays."""
    assert stat.S_IMODE(both.path.stat().st_mode) == 0o660
    taken = ended("serve", "--model", tiny, "--host", f"unix:{both.path}")
    assert taken.returncode == 3
    assert f"Cannot listen on unix:{both.path}: Address already in use." in taken.stderr
    with both.over_file() as file:
        assert file.get("/health").status_code == 200


def test_a_socket_that_was_left_behind(tiny: Path, tmp_path: Path) -> None:
    """It is replaced, and removed at the end; `worker top` reaches it, with the key if there is
    one. A file that is no socket is refused and never removed."""
    path = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
        left.listen()
    with serving("--model", tiny, "--host", str(path), "--api-key", "k") as server:
        assert server.url == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        refused = ended("top", f"unix:{path}", "--once")
        assert (refused.returncode, "asks for a key" in refused.stderr) == (1, True)
        shown = ended("top", f"unix:{path}", "--json", "--api-key", "k")
        assert shown.returncode == 0
        assert json.loads(shown.stdout)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    assert not path.exists()
    path.write_text("mine")
    file = ended("serve", "--model", tiny, "--host", f"unix:{path}")
    assert file.returncode == 2
    assert "a file that is no socket" in file.stderr
    assert path.read_text() == "mine"


def test_clients_check_the_certificate(both: _Both) -> None:
    """The commands refuse one that nobody vouches for, and take it with SSL_CERT_FILE."""
    env = dict(os.environ)
    refused = ended("top", both.server.url, "--once", env=env)
    assert refused.returncode == 1
    assert "certificate verify failed" in refused.stderr
    known = {**env, "SSL_CERT_FILE": str(both.made[0])}
    assert ended("top", both.server.url, "--once", env=known).returncode == 0
    asked = ended(
        "decide", "--url", both.server.url, "--statement", "Yes.", "--state", "It rains.", env=known
    )
    assert "certificate" not in asked.stderr


def test_what_is_wrong_with_a_certificate(tiny: Path, tmp_path: Path) -> None:
    """Exit code 2 and one sentence before the model is looked for, for each way that it can be
    broken."""
    made, key = certificate(tmp_path)
    _, other = certificate(tmp_path, "other")
    _, locked = certificate(tmp_path, "locked", passphrase="secret")
    empty = tmp_path / "empty.pem"
    empty.touch()
    for files, words in (
        ((made, other), "it does not belong to the certificate"),
        ((key, key), "it holds no certificate as PEM"),
        ((made, made), "it holds no private key as PEM"),
        ((made, empty), "it holds no private key as PEM"),
        ((made, locked), "is encrypted"),
        ((tmp_path / "none.pem", key), "No such file or directory"),
        ((made, tmp_path), "Is a directory"),
        ((made, ""), "needs both --ssl-cert-file and --ssl-key-file"),
    ):
        done = ended(
            "serve", "--model", tiny.with_name("none.gguf"), "--ssl-cert-file", files[0],
            "--ssl-key-file", files[1],
        )  # fmt: skip
        assert (done.returncode, words in done.stderr) == (2, True), (words, done.stderr)


def test_certificates_are_read_again(both: _Both, tmp_path: Path) -> None:
    """At SIGHUP, for connections that begin afterwards; a broken one changes nothing."""
    before = _peer_certificate(both, ssl.TLSVersion.TLSv1_3)[1]
    new, key = certificate(tmp_path, "new")
    text, key_text = both.made[0].read_text(), both.made[1].read_text()
    both.made[0].write_text(new.read_text())
    both.server.process.send_signal(signal.SIGHUP)
    both.server.wait_for("the certificate stays as it was")
    assert _peer_certificate(both, ssl.TLSVersion.TLSv1_3)[1] == before
    both.made[1].write_text(key.read_text())
    both.server.process.send_signal(signal.SIGHUP)
    both.server.wait_for("the certificate was read again")
    assert _peer_certificate(both, ssl.TLSVersion.TLSv1_3)[1] != before
    both.made[0].write_text(text)
    both.made[1].write_text(key_text)


def test_who_shakes_no_hands_holds_no_place(tiny: Path, tmp_path: Path) -> None:
    """Clients that connect and say nothing fill all places, and the next one is still served."""
    made, key = certificate(tmp_path)
    with serving(
        "--model", tiny, "--ssl-cert-file", made, "--ssl-key-file", key, "--max-connections", "4"
    ) as server:
        port = urlsplit(server.url).port
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        try:
            assert server.health()["status"] == "ok"
        finally:
            for sock in silent:
                sock.close()
