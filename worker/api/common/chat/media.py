"""Pictures, sounds and films in a conversation: what is known of them in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from worker.api.common.chat.notes import is_address
from worker.api.common.gallery import GALLERY
from worker.errors import RequestError

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
    """Where the model sees or hears it, its words and its mark in the prompt. Else the words of a
    sound, or a note in brackets on a medium."""
    words = [text for _, text in _words(part)]
    if (mark := _mark_of(part)) is not None:
        return "\n".join([*words, mark])
    if is_heard(part):
        return "\n".join(words)
    told = "\n".join(dict.fromkeys([*words, *_addresses(part)]))
    return f"[{medium_of(part)}: {told}]" if told else f"[{medium_of(part)}]"


def check_seen(part: Mapping[str, Any], where: str, param: str) -> None:
    """Raise RequestError for a medium in the newest question that the model will not see or hear,
    here or where the prompt is made."""
    if _mark_of(part, (where, param)) is not None or is_heard(part):
        return
    kind, gallery = medium_of(part) or "", GALLERY.get()
    told = f"{where} is of type {str(part.get('type'))[:40]}"
    if gallery is None or not gallery.takes(kind):
        knows = "text only" if gallery is None else f"no {kind}"
        raise RequestError(
            f"{told}: this model reads {knows}, and the question would be about something that it "
            "cannot see.",
            param=param,
            hint="Ask without it, or describe it.",
        )
    address = next(_addresses(part), "")
    raise RequestError(
        f"{told} and holds no bytes{f': {address[:200]} is not read' if address else ''}.",
        param=param,
        hint="Send it as data:image/png;base64,…, or start the worker with --fetch-images HOST.",
    )


def _mark_of(part: Mapping[str, Any], asked: tuple[str, str] | None = None) -> str | None:
    """Where its bytes stand in the prompt; None: there are none, or the model takes none. asked: as
    in `Gallery.shown`"""
    kind, gallery = medium_of(part), GALLERY.get()
    if gallery is None or kind is None:
        return None
    for fields in _levels(part):
        for name in (*_ADDRESSES, "data", "result"):
            value = fields.get(name)
            if isinstance(value, str) and value and (mark := gallery.shown(kind, value, asked)):
                return mark
    return None


def _words(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Field -> text."""
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
