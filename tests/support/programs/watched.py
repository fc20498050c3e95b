"""A server on loopback that says what a worker is doing: whatever a test wants it to say."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

PATH = "/v1/requests"


def doing(*requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A worker's answer, with these requests; `more` replaces parts of it."""
    return {
        "object": "list",
        "at": 1795343337.12,
        "worker": {
            "state": "ready", "model": "demo", "uptime_s": 3725.4, "slots": 4,
            "running": 2, "waiting": 1,
            "memory": {"resident_bytes": 88 << 20, "planned_bytes": 141 << 20},
            "cells": {"total": 4096, "live": 812, "cached": 1200, "free": 2084},
            "kept": {"memory_bytes": 64 << 20, "memory_limit_bytes": 8 << 30,
                     "disk_bytes": 0, "disk_limit_bytes": 0},
            "totals": {"prompt_tokens": 123_456, "cached_tokens": 4_567,
                       "generated_tokens": 8_910, "requests": 120, "errors": 2},
        },
        "speeds": [[1795343000 + 5 * index, 10.0 * index, 44.5] for index in range(60)],
        "data": list(requests),
        "recent": [{"id": "req-before", "correlation_id": None, "route": "POST /v1/completions",
                    "model": "demo", "status": 200, "outcome": "stop", "code": None,
                    "ended_at": 1795343300.0, "duration_s": 3.25, "wait_s": 0.0,
                    "first_token_s": 0.2, "prompt_tokens": 30,
                    "cached_tokens": 0, "generated_tokens": 50, "tokens_per_second": 44.0,
                    "cache_reason": "date_changed"}],
        "log": [["2026-11-22T10:30:00Z", "info", "serve", "ready", "model=demo"]],
        **more,
    }  # fmt: skip


def request(name: str, state: str = "reading", **more: Any) -> dict[str, Any]:
    """A request at work."""
    return {
        "id": name, "correlation_id": None, "route": "POST /v1/chat/completions", "model": "demo",
        "state": state, "sequences": 1, "stream": True, "age_s": 1.25, "wait_s": 0.4,
        "prompt_tokens": 4000, "read_tokens": 1200, "cached_tokens": 200, "generated_tokens": 12,
        "max_tokens": 512, "tokens_per_second": 12.3 if state == "writing" else None, **more,
    }  # fmt: skip


class WatchedServer(ThreadingHTTPServer):
    """says: what is answered, as JSON, or bytes as they are; key: what it asks for; asked: paths,
    each with the host that was meant."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Watched)
        self.says: dict[str, Any] | bytes = doing()
        self.status = 200
        self.key: str | None = None
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"

    def body(self) -> bytes:
        """The answer."""
        return self.says if isinstance(self.says, bytes) else json.dumps(self.says).encode()


class _Watched(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""

    def do_GET(self) -> None:
        """One answer."""
        server = cast("WatchedServer", self.server)
        server.asked.append((self.path, self.headers["Host"]))
        wanted = server.key and f"Bearer {server.key}"
        status = 401 if wanted and self.headers["Authorization"] != wanted else server.status
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(server.body())


@contextlib.contextmanager
def watched(port: int = 0) -> Generator[WatchedServer]:
    """A server that answers inside of the block."""
    server = WatchedServer(port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
