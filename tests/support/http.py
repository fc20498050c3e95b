"""Requests to the servers that the tests start: `http.get(url)` instead of `httpx.get(url)`.

`httpx.get` reads all certificates of the system on each call: 19 ms, of which a request over plain
HTTP needs none. Here one client serves all threads. Every request still has a connection of its
own, so a test that closes an answer closes its connection.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

#: Long enough for a busy machine; a test fails by what it asserts, not by this.
TIMEOUT_S = 60.0

client = httpx.Client(
    verify=False,
    timeout=TIMEOUT_S,
    limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
)
get = client.get
head = client.head
post = client.post
request = client.request
stream = client.stream


@contextlib.contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Generator[int]:
    """A server on loopback; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
