"""Formats of pictures and sounds, by the first bytes of a file."""

from __future__ import annotations

import base64
from typing import NamedTuple

from worker.errors import RequestError


class MediumKind(NamedTuple):
    """What sentences call a medium, and what is decoded of it.

    noun     with an article, to begin a sentence
    short    without one
    formats  that are decoded; none: no model reads this kind here
    example  what a client sends
    """

    noun: str
    short: str
    formats: tuple[str, ...] = ()
    example: str = ""


# A new kind is named here, in `Projector` (media/child.py), which decodes it, and in `PERCEIVES`
# (lifecycle/loaded.py), which managers are told.
MEDIUM_KINDS = {
    "image": MediumKind(
        "An image",
        "picture",
        ("PNG", "JPEG", "WebP", "AVIF", "GIF", "BMP"),
        "data:image/png;base64,…",
    ),
    "audio": MediumKind(
        "A sound", "sound", ("WAV", "MP3", "FLAC"), "base64 of a WAV, MP3 or FLAC file"
    ),
    "video": MediumKind("A video", "video"),
}
# (the bytes, where they stand, the format's name)
_SIGNS: tuple[tuple[bytes, int, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, "PNG"),
    (b"\xff\xd8\xff", 0, "JPEG"),
    (b"GIF8", 0, "GIF"),
    (b"WEBP", 8, "WebP"),
    (b"WAVE", 8, "WAV"),
    (b"fLaC", 0, "FLAC"),
    (b"ID3", 0, "MP3"),
    *((bytes([0xFF, second]), 0, "MP3") for second in (0xFB, 0xFA, 0xF3, 0xF2)),
    (b"II*\0", 0, "TIFF"),
    (b"MM\0*", 0, "TIFF"),
    (b"II+\0", 0, "TIFF"),
    (b"MM\0+", 0, "TIFF"),
    (b"\xff\x0a", 0, "JPEG XL"),
    (b"\0\0\0\x0cJXL ", 0, "JPEG XL"),
    (b"\0\0\0\x0cjP  ", 0, "JPEG 2000"),
    (b"\xff\x4f\xff\x51", 0, "JPEG 2000"),
    (b"\0\0\x01\0", 0, "ICO"),
    (b"8BPS", 0, "PSD"),
    (b"qoif", 0, "QOI"),
    (b"DDS ", 0, "DDS"),
    (b"%PDF", 0, "PDF"),
    (b"%!PS", 0, "PostScript"),
    (b"OggS", 0, "Ogg"),
    (b"\xff\xf1", 0, "AAC"),
    (b"\xff\xf9", 0, "AAC"),
    (b"AIFF", 8, "AIFF"),
    (b"AIFC", 8, "AIFF"),
    (b"AVI ", 8, "AVI"),
    (b"#!AMR", 0, "AMR"),
    (b"MThd", 0, "MIDI"),
    (b"\x1a\x45\xdf\xa3", 0, "WebM or Matroska"),
    (b"\x1f\x8b", 0, "gzip"),
    (b"PK\x03\x04", 0, "ZIP"),
    (b"BM", 0, "BMP"),
)
_HEAD = 1024  # bytes in which the brands of a file and the beginning of a drawing stand
# Brands of ISO base media files, the first of them that a file names.
_BRANDS = (
    (b"avif", "AVIF"), (b"avis", "AVIF"), (b"heic", "HEIC"), (b"heix", "HEIC"), (b"hevc", "HEIC"),
    (b"heim", "HEIC"), (b"heis", "HEIC"), (b"mif1", "HEIF"), (b"msf1", "HEIF"), (b"M4A ", "M4A"),
    (b"crx ", "CR3"),
)  # fmt: skip


def format_of(data: bytes) -> str | None:
    """Its name; None: it is none of those known here."""
    if data[4:8] == b"ftyp":
        brands = data[8 : min(_HEAD, int.from_bytes(data[:4]))]
        return next((name for brand, name in _BRANDS if brand in brands), "MP4")
    for sign, at, name in _SIGNS:
        if data[at : at + len(sign)] == sign:
            return name
    head = data[:_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n")
    return "SVG" if head[:1] == b"<" and b"<svg" in head.lower() else None


def kind_of(text: str) -> str:
    """image or audio, by the beginning of a file's base64; image if that tells nothing."""
    try:
        head = base64.b64decode(text[:_HEAD])
    except ValueError:
        return "image"
    return "audio" if format_of(head) in MEDIUM_KINDS["audio"].formats else "image"


def check_format(data: bytes, kind: str) -> None:
    """Raise RequestError for bytes that the worker does not decode as a medium of this kind."""
    found, known = format_of(data), MEDIUM_KINDS[kind]
    if found in known.formats:
        return
    is_told = f"is {found}, which is not read" if found else "is of no known format"
    *others, last = known.formats
    raise RequestError(
        f"The {known.short} {is_told}.",
        hint=f"Send it as {' or '.join(filter(None, (', '.join(others), last)))}.",
        code="bad_medium",
    )
