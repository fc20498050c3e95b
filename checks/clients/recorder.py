"""What a client sends, recorded on its way to a worker."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support import http
from worker.api.intake.packed_body import packed_body

_PASSED_ON = ("content-type", "content-encoding", "authorization", "accept")


@dataclass
class Sent:
    """A request: its body as JSON, as bytes where it is none; coding: its Content-Encoding."""

    path: str
    body: Any
    coding: str


@dataclass
class Recorder:
    """url: where clients ask; sent: what they asked so far"""

    url: str = ""
    sent: list[Sent] = field(default_factory=list[Sent])

    def to(self, path: str) -> list[Any]:
        """Bodies that came to a path."""
        return [each.body for each in self.sent if each.path == path]


def _read(data: bytes, coding: str) -> Any:
    packed = packed_body(coding)
    if packed is not None:
        packed.feed(data)
        parts: list[bytes] = []
        while part := packed.take(1 << 16):
            parts.append(part)
        data = b"".join(parts)
    try:
        return json.loads(data)
    except ValueError:
        return data


@contextmanager
def recording(worker_url: str) -> Generator[Recorder]:
    """A server in front of a worker."""
    recorder = Recorder()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing."""

        def do_GET(self) -> None:
            self._pass_on("GET", b"")

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            coding = self.headers.get("content-encoding", "")
            recorder.sent.append(Sent(self.path, _read(data, coding), coding))
            self._pass_on("POST", data)

        def _pass_on(self, method: str, data: bytes) -> None:
            headers = {n: self.headers[n] for n in _PASSED_ON if n in self.headers}
            answer = http.request(method, worker_url + self.path, content=data, headers=headers)
            self.send_response(answer.status_code)
            for name in ("content-type", "x-request-id", "x-typesafe-request-id"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    recorder.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
