"""A small Hub on loopback that the real client talks to, and a CDN beside it on another port.

It speaks what `worker pull` needs: the list of a repository's files, metadata in the answer to
HEAD and in the redirect to the CDN, ranges. What it does wrong is set on it: `Hub.troubles`.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_" + "secret" * 5


@dataclass
class Asked:
    """A request as it arrived."""

    server: str
    method: str
    path: str
    headers: dict[str, str]


@dataclass
class Troubles:
    """What goes wrong. Lists are used up from the front, one element for each request.

    statuses    answers of the Hub instead of the right ones
    cuts        bytes after which the CDN drops the connection
    stall_at    bytes after which the CDN sends nothing more, for as long as it runs
    replace     what the CDN sends for every file
    beyond      the CDN answers 416 to whoever asks for a range
    no_ranges   the CDN answers 200 with all bytes, whatever range was asked for
    claimed     size that the Hub claims for every file
    """

    statuses: list[tuple[int, dict[str, str]]] = field(default_factory=list[Any])
    cuts: list[int] = field(default_factory=list[int])
    stall_at: int | None = None
    replace: bytes | None = None
    no_ranges: bool = False
    beyond: bool = False
    claimed: int | None = None


class Hub:
    """Two servers and what they have; `files` maps a repository to its files."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.plain: set[str] = set()  # paths outside of large-file storage
        self.gated: set[str] = set()
        self.commit = COMMIT
        self.troubles = Troubles()
        self.asked: list[Asked] = []
        self.stalled = threading.Event()
        self.released = threading.Event()
        self._servers = [self._start("hub", self._answer_hub), self._start("cdn", self._answer_cdn)]
        self.url, self.cdn_url = (
            f"http://127.0.0.1:{server.server_address[1]}" for server in self._servers
        )

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """The environment of a process that uses this Hub and a cache below `home`."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HF_", "LLAMA_ARG_", "GGUF_WORKER_", "XDG_"))
            and "proxy" not in name.lower()
        }
        return kept | {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_TOKEN": TOKEN} | more

    def of(self, server: str, method: str) -> list[Asked]:
        """The requests of one kind, in order."""
        return [asked for asked in self.asked if (asked.server, asked.method) == (server, method)]

    def close(self) -> None:
        """Stop both servers and what they are sending."""
        self.released.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def _start(self, name: str, answer: Callable[[_Handler], None]) -> ThreadingHTTPServer:
        hub = self

        class Handler(_Handler):
            def handle_any(self) -> None:
                hub.asked.append(
                    Asked(name, self.command, self.path, {k.lower(): v for k, v in
                                                          self.headers.items()})
                )  # fmt: skip
                answer(self)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    def _answer_hub(self, request: _Handler) -> None:
        if self.troubles.statuses:
            status, headers = self.troubles.statuses.pop(0)
            return request.answer(status, headers)
        parts = unquote(urlsplit(request.path).path).strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            return self._answer_list(request, "/".join(parts[2:4]), parts[5])
        repo, revision, path = "/".join(parts[:2]), parts[3], "/".join(parts[4:])
        if not self._may_read(request, repo, revision):
            return None
        if path not in self.files[repo]:
            return request.answer(404, {"X-Error-Code": "EntryNotFound"})
        content = self.files[repo][path]
        size = self.troubles.claimed or len(content)
        told = {"X-Repo-Commit": self.commit}
        if path in self.plain:
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            return request.answer(200, told | {"ETag": f'"{git}"'}, content)
        digest = hashlib.sha256(content).hexdigest()
        told |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(size), "ETag": '"other"'}
        location = f"{self.cdn_url}/{repo}/{path}?signature=1"
        return request.answer(302, told | {"Location": location})

    def _answer_list(self, request: _Handler, repo: str, revision: str) -> None:
        if not self._may_read(request, repo, revision, listing=True):
            return
        siblings = [
            {
                "rfilename": path,
                "size": len(content),
                "lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)},
            }
            for path, content in self.files[repo].items()
        ]
        body = {"id": repo, "sha": self.commit, "siblings": siblings, "private": False}
        request.answer(200, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def _may_read(
        self, request: _Handler, repo: str, revision: str, *, listing: bool = False
    ) -> bool:
        """Answer as the Hub does where the repository or revision is not to be read."""
        if repo not in self.files:
            request.answer(401, {"X-Error-Code": "RepoNotFound"})
        elif repo in self.gated and not listing:
            request.answer(403, {"X-Error-Code": "GatedRepo"})
        elif revision not in ("main", self.commit):
            request.answer(404, {"X-Error-Code": "RevisionNotFound"})
        else:
            return True
        return False

    def _answer_cdn(self, request: _Handler) -> None:
        parts = unquote(urlsplit(request.path).path).strip("/").split("/")
        content = self.files["/".join(parts[:2])]["/".join(parts[2:])]
        content = content if self.troubles.replace is None else self.troubles.replace
        headers = {"Content-Length": str(len(content)), "Accept-Ranges": "bytes"}
        status, start = 200, 0
        asked = request.headers.get("Range")
        if asked and self.troubles.beyond:
            request.answer(416, {"Content-Range": f"bytes */{len(content)}"})
            return
        if asked and not self.troubles.no_ranges:
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            status = 206
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            headers["Content-Length"] = str(len(content) - start)
        request.begin(status, headers)
        body = content[start:]
        if self.troubles.cuts:
            request.wfile.write(body[: self.troubles.cuts.pop(0)])
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)
        elif self.troubles.stall_at is not None:
            request.wfile.write(body[: self.troubles.stall_at])
            request.wfile.flush()
            self.stalled.set()
            self.released.wait()
            request.close_connection = True
        else:
            request.wfile.write(body)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        """Answer the request that was read."""
        raise AssertionError("a server overrides this")

    def do_GET(self) -> None:
        self.handle_any()

    def do_HEAD(self) -> None:
        self.handle_any()

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """Status line and headers."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        """A whole answer; to HEAD without its body."""
        self.begin(status, {"Content-Length": str(len(body))} | headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name there)
        pass


@contextmanager
def running() -> Generator[Hub]:
    """A Hub that ends with the block."""
    hub = Hub()
    try:
        yield hub
    finally:
        hub.close()
