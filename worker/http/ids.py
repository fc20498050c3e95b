"""The ids of a request: its client's own, or ours."""

from __future__ import annotations

import uuid

from worker.limits import REQUEST_ID


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
