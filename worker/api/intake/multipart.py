"""A multipart/form-data body (RFC 7578) that is there whole."""

from __future__ import annotations

import re
from collections.abc import Collection

from worker.errors import RequestError
from worker.limits import MEDIA

MEDIA_TYPE = "multipart/form-data"
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]+)"|([^\s";,]+))', re.IGNORECASE)
_NAME = re.compile(
    rb'^content-disposition:[^\r\n]*;\s*name="([^"\r\n]*)"', re.IGNORECASE | re.MULTILINE
)


def parts_of(
    data: bytes | bytearray, content_type: str, lists: Collection[str] = ()
) -> dict[str, bytes]:
    """Name -> content.

    lists: names that may stand several times, of which the last counts
    Raises RequestError.
    """
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise _wrong("its Content-Type names no boundary")
    line = b"\r\n--" + (found[1] or found[2]).encode("latin-1", "replace")
    at = 0 if data.startswith(line[2:]) else data.find(line) + 2
    if at == 1:
        raise _wrong("it has no part")
    at += len(line) - 2
    parts: dict[str, bytes] = {}
    count = 0
    while not data.startswith(b"--", at):
        end = data.find(line, at)
        begin = data.find(b"\r\n\r\n", at, end)
        if end < 0 or begin < 0:
            raise _wrong("a part does not end")
        name = _NAME.search(bytes(data[at:begin]))
        if name is None:
            raise _wrong("a part has no name")
        text = name[1].decode("utf-8", "replace")
        if text in parts and text not in lists:
            raise _wrong(f"two parts are named {text[:100]}")
        count += 1
        if count > MEDIA.most + 1:
            raise _wrong(f"it has more than {MEDIA.most + 1} parts")
        parts[text] = bytes(data[begin + 4 : end])
        at = end + len(line)
    return parts


def _wrong(why: str) -> RequestError:
    return RequestError(f"The body is not valid {MEDIA_TYPE}: {why}.")
