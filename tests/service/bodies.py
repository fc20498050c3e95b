"""Request bodies that are not the JSON that the service reads."""

from __future__ import annotations

#: An integer that no field takes and that no float holds.
BIG = 10**400

BAD_BODIES = {
    "empty": b"",
    "array": b"[1]",
    "text": b'"a"',
    "truncated": b'{"prompt": "a"',
    "trailing": b'{"prompt": "a"} x',
    "nan": b'{"prompt": "a", "temperature": NaN}',
    "huge float": b'{"prompt": "a", "temperature": 1e999}',
    "bom": b'\xef\xbb\xbf{"prompt": "a"}',
    "utf-16": '{"prompt": "a"}'.encode("utf-16"),
    "invalid utf-8": b'{"prompt": "\xff"}',
    "overlong": b'{"prompt": "\xc0\xaf"}',
    "comment": b'{"prompt": "a" /* c */}',
    "deep": b"[" * 100_000,
    "deep field": b'{"prompt": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "surrogate": b'{"prompt": "\\ud800"}',
    "deep schema": b'{"prompt": "a", "json_schema": '
    + b'{"items":' * 500
    + b"{}"
    + b"}" * 500
    + b"}",
}
