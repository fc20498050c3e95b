"""Notes in brackets: what a history holds beside texts, as a model can read it.

All that can be read is there, whole. Of bytes only their number is told.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

import msgspec

from worker.api.intake.media_formats import MEDIUM_KINDS
from worker.api.intake.media_inputs import MediaInputs

# What says nothing to a model: names of things, bytes of media, marks for the server.
_UNSAID = frozenset(
    "type id call_id tool_use_id cache_control signature encrypted_content citations "
    "annotations caller".split()
)
_BYTES = frozenset({"data", "b64_json", "blob", "bytes", "result", "file_data", "url"})
_BASE64 = re.compile(r"[A-Za-z0-9+/=_\-\r\n]{256,}")
_DATA_URL = re.compile(r"data:([\w.+-]+)/[\w.+-]+[^,]{0,200};base64,")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_FAILED = frozenset({"incomplete", "failed", "error", "cancelled", "canceled"})
_DEPTH = 20  # of values in each other that are searched for bytes
_NO = frozenset({"", "0", "false", "no", "none", "null"})


def note_of(kind: str, fields: Mapping[str, Any], media: MediaInputs) -> str:
    """A note on something that is no text, with all that it says."""
    told = telling_fields(fields, media)
    name = told.pop("name", None)
    head = f"{kind} {name}" if isinstance(name, str) else kind
    return f"[{head}: {as_text(told)}]" if told else f"[{head}]"


def telling_fields(
    fields: Mapping[str, Any], media: MediaInputs, known: Collection[str] = ()
) -> dict[str, Any]:
    """Those that say something to a model, without the known ones."""
    return {
        name: _show(name, value, media)
        for name, value in fields.items()
        if name not in _UNSAID
        and name not in known
        and value not in (None, "", [], {})
        and (name != "status" or _is_failure(value))
    }


def is_address(value: Any) -> bool:
    """Whether it is a URL that leads somewhere, and holds no data itself."""
    return isinstance(value, str) and _ADDRESS.fullmatch(value) is not None


def source_notes(given: Any) -> list[str]:
    """A note on each thing with an address that a text refers to."""
    notes: list[str] = []
    for each in cast("list[Any]", given) if isinstance(given, list) else []:
        outer = cast("Mapping[str, Any]", each if isinstance(each, dict) else {"url": each})
        inner = outer.get("url_citation")
        found = cast("Mapping[str, Any]", inner) if isinstance(inner, dict) else outer
        title, address = found.get("title"), found.get("url")
        if is_address(address):
            notes.append(f"[source: {title} {address}]" if title else f"[source: {address}]")
    return list(dict.fromkeys(notes))


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return "[too deep to be read]"


def has_failed(fields: Mapping[str, Any]) -> bool:
    """Whether a tool's result says of itself that the tool failed."""
    flags = (fields.get("is_error"), fields.get("isError"), fields.get("error"))
    return _is_failure(fields.get("status")) or any(map(_is_yes, flags))


def _is_failure(status: Any) -> bool:
    return isinstance(status, str) and status in _FAILED


def _is_yes(value: Any) -> bool:
    return value.strip().lower() not in _NO if isinstance(value, str) else bool(value)


def without_media(value: Any, media: MediaInputs) -> Any:
    """A tool's own value with the data URLs of media as a word on how long they are."""
    return _show("", value, media, only_media=True)


def _show(
    name: str, value: Any, media: MediaInputs, depth: int = 0, *, only_media: bool = False
) -> Any:
    """The same with bytes as a word on how many they are, and a warning if a medium is lost."""
    if isinstance(value, str):
        url = _DATA_URL.match(value)
        is_medium = url is not None and url[1] in MEDIUM_KINDS
        if url is not None and is_medium:
            media.leave_out(url[1], why="it stands in a field that is read as text.")
        is_bytes = url or (name in _BYTES and _BASE64.fullmatch(value))
        if is_medium if only_media else is_bytes:
            return f"({len(value)} characters of data are left out)"
        return value
    if depth > _DEPTH:
        return value
    if isinstance(value, list):
        each = cast("list[Any]", value)
        return [_show(name, part, media, depth + 1, only_media=only_media) for part in each]
    if isinstance(value, dict):
        inside = cast("dict[str, Any]", value)
        return {
            key: _show(key, part, media, depth + 1, only_media=only_media)
            for key, part in inside.items()
        }
    return value
