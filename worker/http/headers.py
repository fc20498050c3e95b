"""What the gate reads of headers: ids, the client's own or ours, and Host, of which addresses are
made: one that is none is refused (RFC 9112, 3.2)."""

from __future__ import annotations

import re
import uuid
from urllib.parse import urlsplit

from worker.errors import RequestError
from worker.limits import HOST, REQUEST_ID


def ids_of(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """The client's own ids where it sent printable ones, and a request id in any case."""
    found: dict[str, str] = {}
    for name in ("x-request-id", "x-correlation-id"):
        for key, value in headers:
            text = value.decode("latin-1")
            if key == name.encode() and 0 < len(text) <= REQUEST_ID.most and text.isprintable():
                found[name] = text
                break
    found.setdefault("x-request-id", f"req-{uuid.uuid4().hex}")
    return found


_HOST = re.compile(rb"([A-Za-z0-9._~-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{0,5})?")


def refusal_of_host(headers: list[tuple[bytes, bytes]]) -> RequestError | None:
    """The error for a header that names no host and port; none at all is HTTP/1.0's way."""
    hosts = [value for name, value in headers if name == b"host"]
    if not hosts or (len(hosts) == 1 and _is_one(hosts[0])):
        return None
    return RequestError("The header Host must name one host, with or without a port.", param="host")


def _is_one(host: bytes) -> bool:
    if len(host) > HOST.most or not _HOST.fullmatch(host):
        return False
    try:
        parts = urlsplit(b"http://" + host)
        return parts.port != 0
    except ValueError:  # a port above 65535, brackets around what is no address
        return False
