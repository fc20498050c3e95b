"""What a message's content says: a text, parts, blocks, or nothing, in whatever API.

A part that is no text becomes its text, or a note in brackets with what it holds: a history that
another server wrote must not end a session, and nothing of it is passed over in silence. Only a
picture in the newest question is refused, because the answer would be about nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from worker.api.intake.chat.placeholders import (
    as_text,
    has_failed,
    is_address,
    note_of,
    source_notes,
    telling_fields,
)
from worker.api.intake.media_formats import MEDIUM_KINDS
from worker.api.intake.media_inputs import MediaInputs
from worker.errors import RequestError

_KINDS = "|".join(MEDIUM_KINDS)
_KIND = re.compile(rf"(?:input_|output_)?({_KINDS})(?:[-_/].*)?|(?:\w+_)?(screenshot)")
# What holds a picture or sound where its bytes are said to be one. Without a type its one field
# says what it is.
_AROUND = frozenset("file input_file document resource media inline_data inlineData".split())
_MIME = re.compile(rf"(?:data:)?({_KINDS})/")
_MIMES = ("mimeType", "mime_type", "mediaType", "media_type")
_BYTES = re.compile(r"data:[\w.+-]+/|[A-Za-z0-9+/_\-\s]{64,}=*$")
_HEAD = 1024  # characters by which bytes are known
# What one may say of itself, there or deeper.
_CAPTIONS = tuple(
    "title filename text transcript revised_prompt prompt caption alt alt_text "
    "description error".split()
)
# Where else one may have an address, which is told; data in its place is not.
_ADDRESSES = ("url", "uri", *(f"{kind}_url" for kind in MEDIUM_KINDS), *MEDIUM_KINDS)
# All fields of such a part.
MEDIA_FIELDS = frozenset((*_CAPTIONS, *_MIMES, *MEDIUM_KINDS)).union(
    "source image_url input_audio video_url data url format file_id detail result status "
    "base64 blob bytes file_data source_type uuid extras".split()
)


def medium_of(part: Mapping[str, Any]) -> str | None:
    """image, audio or video where a part is one; else None."""
    kind = part.get("type")
    if isinstance(part.get("content"), list):
        return None  # a block around others
    if kind is None and len(part) == 1 and holds_bytes(part):
        (kind,) = part
    if not isinstance(kind, str):
        return None
    if found := _KIND.fullmatch(kind):
        return found[1] or "image"
    return _kind_inside(part) if kind in _AROUND else None


def holds_bytes(part: Mapping[str, Any]) -> bool:
    """Whether a medium's bytes stand in the part, not where they are to be had."""
    return any(_BYTES.match(place[:_HEAD]) for place in _places(part))


def _kind_inside(part: Mapping[str, Any]) -> str | None:
    places = _places(part)
    told = [fields.get(name) for fields in _levels(part) for name in _MIMES] if places else []
    kinds = (_MIME.match(each) for each in [*places, *told] if isinstance(each, str))
    return next((found[1] for found in kinds if found), None)


def is_heard(part: Mapping[str, Any]) -> bool:
    """Whether it is a sound whose words are known."""
    return medium_of(part) == "audio" and "transcript" in dict(_captions(part))


def medium_words(part: Mapping[str, Any], media: MediaInputs) -> str:
    """Where the model sees or hears it, its words and its mark in the prompt. Else the words of a
    sound, or a note in brackets on a medium."""
    words = [text for _, text in _captions(part)]
    own: dict[str, Any] = {
        name: value for name, value in part.items() if isinstance(value, str | list)
    }
    rest = telling_fields(own, media, MEDIA_FIELDS)
    words += [note_of("more", rest, media)] if rest else []
    if (mark := _mark_of(part, media)) is not None:
        return "\n".join([*words, mark])
    if is_heard(part):
        return "\n".join(words)
    kind = medium_of(part) or ""
    media.leave_out(kind, _places(part))
    told = "\n".join(dict.fromkeys([*words, *_addresses(part)]))
    return f"[{kind}: {told}]" if told else f"[{kind}]"


def check_seen(part: Mapping[str, Any], where: str, param: str, media: MediaInputs) -> None:
    """Raise RequestError for a medium in the newest question that the model will not see or hear,
    here or where the prompt is made."""
    if _mark_of(part, media, (where, param)) is not None or is_heard(part):
        return
    kind = medium_of(part) or ""
    told = f"{where} is of type {str(part.get('type'))[:40]}"
    if not media.takes(kind):
        raise RequestError(
            f"{told}: {media.reads(kind)}, and the question would be about something that it does "
            "not get.",
            param=param,
            hint="Ask without it, or start the worker with a model that takes it and --mmproj.",
        )
    address = next(_addresses(part), "")
    raise RequestError(
        f"{told} and holds no bytes{f': {address[:200]} is not read' if address else ''}.",
        param=param,
        hint=f"Send it as {MEDIUM_KINDS[kind].example}, or start the worker with "
        "--fetch-images HOST.",
    )


def _mark_of(
    part: Mapping[str, Any], media: MediaInputs, asked: tuple[str, str] | None = None
) -> str | None:
    """Where its bytes stand in the prompt; None: there are none, or the model takes none. asked: as
    in `MediaInputs.mark`"""
    kind = medium_of(part)
    if kind is None or not media.takes(kind):
        return None
    marks = (media.mark(kind, place, asked) for place in _places(part))
    return next(filter(None, marks), None)


def _places(part: Mapping[str, Any]) -> list[str]:
    """Where its bytes may stand: data, or addresses."""
    names = (*_ADDRESSES, "data", "result", "base64", "blob", "bytes", "file_data")
    given = [fields.get(name) for fields in _levels(part) for name in names]
    return [each for each in given if isinstance(each, str) and each]


def _captions(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Field -> text."""
    for fields in _levels(part):
        for name in _CAPTIONS:
            if isinstance(text := fields.get(name), str) and text:
                yield name, text


def _addresses(part: Mapping[str, Any]) -> Iterator[str]:
    for fields in _levels(part):
        yield from (fields[name] for name in _ADDRESSES if is_address(fields.get(name)))


def _levels(part: Mapping[str, Any], deeper: int = 2) -> list[Mapping[str, Any]]:
    """The part's fields, and those that stand up to two levels deeper."""
    inside = [cast("Mapping[str, Any]", each) for each in part.values() if isinstance(each, dict)]
    below = (_levels(each, deeper - 1) for each in inside) if deeper else ()
    return [part, *(fields for level in below for fields in level)]


ContentPart = dict[str, Any]
# null, nothing, [] and "" mean the same.
MessageContent = str | list[Any] | ContentPart | int | float | bool | None

_DEPTH = 20  # of blocks in each other that are taken apart
# Types of parts; an object of another type that a tool returns is its own, and stays JSON.
KINDS = frozenset(
    "text input_text output_text summary_text refusal thinking reasoning "
    "redacted_thinking file input_file document search_result tool_reference resource "
    "resource_link".split()
)
# Fields of a part that stand before its words, that hold them, and that hold parts.
_HEADS = ("title", "filename", "context")
_WORDS = ("text", "value", "refusal", "thinking", "reasoning", "transcript")
_INSIDE = ("source", "content", "output", "summary")
_READ = frozenset({*_HEADS, *_WORDS, *_INSIDE, "error", "is_error", "isError", "status"})
# All fields of a part of one of these types.
PART_FIELDS = _READ | {
    "file",
    "file_id",
    "file_url",
    "file_data",
    "resource",
    "uri",
    "url",
    "mimeType",
    "mime_type",
    "tool_name",
    "name",
    "format",
}
_HIDDEN = frozenset({"redacted_thinking"})  # only its author can read it


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
            parts.append({"type": "text", "text": as_text(part)})
    return parts


def text_of(content: MessageContent, media: MediaInputs) -> str:
    """All that it says, a line for each part."""
    if content is None or isinstance(content, str):
        return content or ""
    return text_of_parts(parts_of(content), media)


def text_of_parts(parts: Iterable[ContentPart], media: MediaInputs, depth: int = 0) -> str:
    """What these parts say, a line each. depth: of blocks that they stand in"""
    said = (words_of(part, media, depth) for part in parts)
    return media.lines(each for each in said if each is not None)


def words_of(part: Mapping[str, Any], media: MediaInputs, depth: int = 0) -> str | None:
    """What one part says, all of it; None: nothing. depth: of blocks that it stands in"""
    kind = as_text(part.get("type") or "part")
    if kind in _HIDDEN:
        return None
    if medium_of(part):
        return medium_words(part, media)
    if kind == "tool_reference":
        return f"[tool {part.get('tool_name') or part.get('name') or ''}]"
    said = [text for name in _INSIDE if (text := _inside(part.get(name), media, depth + 1))]
    names = (*_WORDS, "data") if kind == "text" else _WORDS
    words = [text for name in names if (text := _inside(part.get(name), media, depth + 1))]
    if not words and not said:
        is_empty = any(name in part and kind.endswith(name) for name in _WORDS)
        return "" if is_empty else note_of(kind, part, media)
    for name in ("citations", "annotations"):
        said += source_notes(part.get(name))
    heads = [text for name in _HEADS if (text := _inside(part.get(name), media, depth + 1))]
    rest = {} if kind in KINDS else telling_fields(part, media, _READ)
    if any(isinstance(value, str | list | dict) for value in rest.values()):
        said.append(note_of(kind, rest, media))
    if (error := part.get("error")) not in (None, "", True, False):
        said.append(as_text(error))
    has_told = kind.endswith(("_result", "_output")) and has_failed(part)
    return ("Error: " if has_told else "") + "\n".join([*heads, *words, *said])


def _inside(value: Any, media: MediaInputs, depth: int) -> str:
    """What stands in a block: a text, blocks, or a document's source."""
    if value is None or isinstance(value, bool):
        return ""
    if depth > _DEPTH:
        return as_text(value)
    if isinstance(value, list):
        return text_of_parts(parts_of(cast("list[Any]", value)), media, depth)
    if isinstance(value, dict):
        part = cast("ContentPart", value)
        if part.get("type") == "base64" or not (telling_fields(part, media) or medium_of(part)):
            return ""  # the note on what it stands in counts its bytes
        return words_of(part, media, depth) or ""
    return as_text(value)


def check_pictures(content: MessageContent, where: str, param: str, media: MediaInputs) -> None:
    """Raise RequestError where the newest question shows something."""
    if isinstance(content, str):
        return
    parts = parts_of(content)
    if any(part.get("type") == "tool_result" for part in parts):
        return  # what a tool shows
    for place, part in enumerate(parts):
        if medium_of(part):
            check_seen(part, f"{where}[{place}]", param, media)


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
