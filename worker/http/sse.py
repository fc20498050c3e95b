"""Server-sent events as OpenAI clients read them: `data: {json}` and a blank line."""

from __future__ import annotations

from worker.lines import encoded

# Several benchmark clients split on "\n\n" alone, so no CRLF, no `event:` and no `id:` lines.
CONTENT_TYPE = b"text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"
COMMENT = b":\n\n"  # readers skip it


def frame(value: object, *, name: str = "") -> bytes:
    """One event; with a name only for readers that are known to want one."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + encoded(value) + b"\n\n"
