"""JSON that stays one line, and server-sent events as OpenAI clients read them: `data: {json}` and
a blank line."""

from __future__ import annotations

import msgspec

# Ends of lines to `str.splitlines` of Python and to readers of other languages, which JSON lets
# stand in a text, in UTF-8 -> as JSON spells them. Those below U+0020 are always escaped.
_ENDS = {
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
    "\u0085".encode(): b"\\u0085",
}
_encoder = msgspec.json.Encoder()


def encode(value: object) -> bytes:
    """The value as JSON in one line, without an end."""
    return in_one_line(_encoder.encode(value))


def in_one_line(data: bytes) -> bytes:
    """JSON without line ends of its own, so that no reader of lines finds one in it."""
    for end, escape in _ENDS.items():
        data = data.replace(end, escape)
    return data


# Several benchmark clients split on "\n\n" alone, so no CRLF, no `event:` and no `id:` lines but
# for who asks for them.
CONTENT_TYPE = b"text/event-stream; charset=utf-8"
LINES_TYPE = b"application/x-ndjson"
# Content type -> what ends each event.
BORDERS = {CONTENT_TYPE: b"\n\n", LINES_TYPE: b"\n"}
DONE = b"data: [DONE]\n\n"
COMMENT = b":\n\n"  # readers skip it


def frame(value: object, *, name: str = "") -> bytes:
    """One event; with a name only for readers that are known to want one."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + in_one_line(_encoder.encode(value)) + b"\n\n"
