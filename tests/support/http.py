"""Requests to the servers that the tests start: `http.get(url)` instead of `httpx.get(url)`.

`httpx.get` reads all certificates of the system on each call: 19 ms, of which a request over plain
HTTP needs none. Here one client serves all threads. Every request still has a connection of its
own, so a test that closes an answer closes its connection.
"""

from __future__ import annotations

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
