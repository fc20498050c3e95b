"""HTTP for tests: `http.get(url)` as `httpx.get(url)`, which reads all certificates each time.

Every request has a connection of its own, so a test that closes an answer closes its connection.
"""

from __future__ import annotations

import httpx

client = httpx.Client(
    verify=False,
    timeout=60.0,  # a test fails by what it asserts, not by this
    limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
)
get = client.get
head = client.head
post = client.post
stream = client.stream
