"""What a tool returned, in whatever API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from worker.api.common.chat.media import MEDIA_FIELDS, medium_of
from worker.api.common.chat.notes import has_failed, note_of, said_fields, written
from worker.api.common.chat.parts import KINDS, PART_FIELDS, text_of
from worker.api.common.gallery import in_lines
from worker.chat.message import Message

# Fields that hold what was returned, the first that is there.
_RETURNED = ("output", "content", "outputs", "results", "result", "text")
# What else is known of a result: whose it is, how it went, and marks for the server.
_KNOWN = frozenset({
    "name", "tool_name", "tool_call_id", "role", "namespace", "server_label", "execution",
    "created_by", "status", "is_error", "isError", "error", "approval_request_id",
})  # fmt: skip


def result_of(fields: Mapping[str, Any], *, call_id: str | None, name: str | None) -> Message:
    """A tool's result from the fields that an API gives it. An error's words end it."""
    used = next((each for each in _RETURNED if fields.get(each) is not None), None)
    returned = output_of(fields.get(used)) if used is not None else ""
    rest = said_fields(fields, (*_KNOWN, *((used,) if used is not None else ())))
    error = fields.get("error")
    told = [returned]
    if not used:
        told += [written(next(iter(rest.values())) if len(rest) == 1 else rest)] if rest else []
    elif any(isinstance(value, str | list | dict) for value in rest.values()):
        told.append(note_of("more", rest))
    if error not in (None, "", True, False) and (text := written(error)) != returned:
        told.append(text)
    content = in_lines(filter(None, told))
    return Message(
        role="tool", content=content, call_id=call_id, name=name, is_error=has_failed(fields)
    )


def output_of(given: Any) -> str:
    """What a tool returned: a text, parts, or any other value as JSON."""
    if given is None or isinstance(given, str):
        return given or ""
    parts = cast("list[Any]", given if isinstance(given, list) else [given])
    if all(part is None or isinstance(part, str) or _is_part(part) for part in parts):
        return text_of(parts)
    return written(given)


def _is_part(value: Any) -> bool:
    """Whether it is a part of a kind that some API has; else it is a tool's own object."""
    if not isinstance(value, dict):
        return False
    part = cast("Mapping[str, Any]", value)
    kind, is_medium = part.get("type"), medium_of(part) is not None
    if not isinstance(kind, str) or not (kind in KINDS or is_medium):
        return False
    # What a part of that kind never has is a tool's own, and would not be told.
    rest = said_fields(part, MEDIA_FIELDS if is_medium else PART_FIELDS)
    return not any(not name.startswith("_") for name in rest)
