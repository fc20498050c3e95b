"""Pictures, sounds and films in a conversation: what is known of them in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from worker.api.common.chat.notes import is_address

_KIND = re.compile(r"(?:input_|output_)?(image|audio|video)(?:[_/].*)?|(?:\w+_)?(screenshot)")
# What one may say of itself, there or one level deeper.
_WORDS = (
    "title", "filename", "text", "transcript", "revised_prompt", "prompt", "caption", "alt",
    "alt_text", "description", "error",
)  # fmt: skip
# Where else one may have an address, which is told; data in its place is not.
_ADDRESSES = ("url", "uri", "image_url", "video_url", "audio_url", "image", "audio", "video")
# All fields of such a part.
MEDIA_FIELDS = frozenset({
    *_WORDS, "source", "image_url", "input_audio", "audio", "video_url", "image", "video", "data",
    "url", "mimeType", "mime_type", "media_type", "format", "file_id", "detail", "result", "status",
})  # fmt: skip


def medium_of(part: Mapping[str, Any]) -> str | None:
    """image, audio or video where a part is one; else None."""
    kind = part.get("type")
    if not isinstance(kind, str):
        return None
    if isinstance(part.get("content"), list):
        return None  # a block around others
    if isinstance(part.get("source"), dict) and kind == "document":
        return None
    found = _KIND.fullmatch(kind)
    return found and (found[1] or "image")


def is_heard(part: Mapping[str, Any]) -> bool:
    """Whether it is a sound whose words are known."""
    return medium_of(part) == "audio" and "transcript" in dict(_words(part))


def medium_words(part: Mapping[str, Any]) -> str:
    """The words of a sound, or a note in brackets on a medium."""
    words = [text for _, text in _words(part)]
    if is_heard(part):
        return "\n".join(words)
    told = "\n".join(dict.fromkeys([*words, *_addresses(part)]))
    return f"[{medium_of(part)}: {told}]" if told else f"[{medium_of(part)}]"


def _words(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for fields in _levels(part):
        for name in _WORDS:
            if isinstance(text := fields.get(name), str) and text:
                yield name, text


def _addresses(part: Mapping[str, Any]) -> Iterator[str]:
    for fields in _levels(part):
        yield from (fields[name] for name in _ADDRESSES if is_address(fields.get(name)))


def _levels(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The part's fields, and those that stand one level deeper."""
    inside = [cast("Mapping[str, Any]", each) for each in part.values() if isinstance(each, dict)]
    return [part, *inside]
