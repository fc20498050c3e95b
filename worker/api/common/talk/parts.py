"""What a message's content says: a text, parts, blocks, or nothing, in whatever API.

A part that is no text becomes its text, or a short note in brackets: a history that another server
wrote must not end a session. Only a picture in the newest question is refused, because the answer
would be about nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from worker.errors import RequestError

ContentPart = dict[str, Any]
# null, nothing, [] and "" mean the same.
MessageContent = str | list[Any] | ContentPart | int | float | bool | None

_NOTE = 400  # characters of a note
_DEPTH = 20  # of blocks in each other that are taken apart
# Types of parts; an object of another type that a tool returns is its own, and stays JSON.
_KINDS = frozenset({
    "text", "input_text", "output_text", "summary_text", "refusal", "thinking", "reasoning",
    "redacted_thinking", "file", "input_file", "document", "search_result", "tool_reference",
    "resource", "resource_link",
})  # fmt: skip
# Fields that hold a part's words, the first that is there.
_WORDS = ("text", "refusal", "thinking", "reasoning", "data", "transcript")
_INSIDE = ("content", "source", "output", "summary")
_HIDDEN = frozenset({"redacted_thinking"})  # only its author can read it
# What says nothing to a model: names of things, bytes of media, marks for the server.
_UNSAID = frozenset({
    "type", "id", "call_id", "tool_use_id", "status", "cache_control", "signature", "data",
    "encrypted_content", "file_data", "image_url", "citations", "annotations", "caller",
})  # fmt: skip
_MEDIA = {"image": "image", "audio": "audio", "video": "video", "screenshot": "image"}


def parts_of(content: MessageContent) -> list[ContentPart]:
    """The content as parts; texts are parts of type text."""
    return _parts_of(content, 0)


def _parts_of(content: MessageContent, depth: int) -> list[ContentPart]:
    given = content if isinstance(content, list) else [content]
    parts: list[ContentPart] = []
    for part in given:
        if isinstance(part, list) and depth < _DEPTH:
            parts += _parts_of(cast("MessageContent", part), depth + 1)
        elif isinstance(part, dict):
            parts += [cast("ContentPart", part)] if part else []
        elif part is not None and part not in ("", []):
            parts.append({"type": "text", "text": _written(part)})
    return parts


def text_of(content: MessageContent) -> str:
    """All that it says, a line for each part."""
    return content if isinstance(content, str) else joined(parts_of(content))


def _written(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return "[too deep to be read]"


def joined(parts: Iterable[ContentPart], depth: int = 0) -> str:
    """What these parts say, a line each. depth: of blocks that they stand in"""
    return "\n".join(said for part in parts if (said := words_of(part, depth)) is not None)


def words_of(part: Mapping[str, Any], depth: int = 0) -> str | None:
    """What one part says; None: nothing. depth: of blocks that it stands in"""
    kind = str(part.get("type") or "part")
    if kind in _HIDDEN:
        return None
    if medium := medium_of(part):
        return f"[{medium}]"
    if kind == "tool_reference":
        return f"[tool {part.get('tool_name') or part.get('name') or ''}]"
    for field in _WORDS:
        if isinstance(words := part.get(field), str) and (field != "data" or kind == "text"):
            return words
        if field in part and part[field] is None and kind.endswith(field):
            return ""
    for field in _INSIDE:
        inside = part.get(field)
        if (
            isinstance(inside, str | list | dict)
            and inside
            and (said := _inside(cast("Any", inside), depth + 1))
        ):
            title = part.get("title") or part.get("filename")
            return f"{title}\n{said}" if isinstance(title, str) and title else said
    return note_of(kind, part)


def note_of(kind: str, fields: Mapping[str, Any]) -> str:
    """A short note in brackets on something that is no text."""
    told = {name: value for name, value in fields.items() if name not in _UNSAID and value}
    name = told.pop("name", None)
    head = f"{kind} {name}" if isinstance(name, str) else kind
    rest = _written(told) if told else ""
    return f"[{head}: {rest[:_NOTE]}]" if rest else f"[{head}]"


def medium_of(part: Mapping[str, Any]) -> str | None:
    """image, audio or video where a part is one; else None."""
    kind = str(part.get("type") or "")
    source = part.get("source")
    if isinstance(source, dict) and kind == "document":
        return None
    return next((medium for word, medium in _MEDIA.items() if word in kind), None)


def check_pictures(content: MessageContent, where: str, param: str) -> None:
    """Raise RequestError where the newest question shows something."""
    parts = parts_of(content)
    if any(part.get("type") == "tool_result" for part in parts):
        return  # what a tool shows
    for place, part in enumerate(parts):
        if medium := medium_of(part):
            raise RequestError(
                f"{where}[{place}] is of type {str(part.get('type'))[:40]}: this model reads text "
                f"only, and the question would be about {medium} that it cannot see.",
                param=param,
                hint="Ask without it, or describe it.",
            )


def newest(roles: list[str | None]) -> int:
    """The place of the question that is to be answered: the user's last message, unless an
    assistant or a tool has spoken after it or just before it. None: behind the last message."""
    for place in range(len(roles) - 1, -1, -1):
        if roles[place] == "user":
            is_shown = place > 0 and roles[place - 1] in ("tool", "function")
            return len(roles) if is_shown else place
        if roles[place] not in ("system", "developer"):
            break
    return len(roles)


def called_name(given: Any) -> str:
    """What was called; a call without a name in a history is one all the same."""
    return given if isinstance(given, str) and given else "unknown"


def arguments_of(given: Any) -> str:
    """A past call's arguments as JSON text, as they were written where they are text."""
    if isinstance(given, str):
        return given
    return msgspec.json.encode({} if given is None else given).decode()


def output_of(given: Any) -> str:
    """What a tool returned: a text, parts, or any other value as JSON."""
    if given is None or isinstance(given, str):
        return given or ""
    parts = cast("list[Any]", given if isinstance(given, list) else [given])
    if all(part is None or isinstance(part, str) or _is_part(part) for part in parts):
        return text_of(parts)
    return _written(given)


def _is_part(value: Any) -> bool:
    """Whether it is a part of a kind that some API has; else it is a tool's own object."""
    if not isinstance(value, dict):
        return False
    part = cast("ContentPart", value)
    return part.get("type") in _KINDS or medium_of(part) is not None


def _inside(value: Any, depth: int) -> str:
    """What stands in a block: a text, blocks, or a document's source."""
    if depth > _DEPTH:
        return _written(value)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return joined(parts_of([item for item in items if isinstance(item, str | dict)]), depth)
    if isinstance(value, dict):
        part = cast("ContentPart", value)
        data = part.get("data")
        if isinstance(data, str) or part.get("type") == "text":
            return str(data or part.get("text") or "") if part.get("type") == "text" else ""
        return words_of(part, depth) or ""
    return value if isinstance(value, str) else ""
