"""Pictures of all kinds become the pixels that a browser shows."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.support.cases import for_each
from worker.llama.media.pictures import UnreadablePictureError, open_picture, pixels_of

_MOST = 50_000_000
_RNG = np.random.default_rng(0)
_NOISE = np.kron(_RNG.integers(0, 256, (6, 8, 3), np.uint8), np.ones((8, 8, 1), np.uint8))
COLORED = Image.fromarray(_NOISE)
GREY, INKS, TABLED = COLORED.convert("L"), COLORED.convert("CMYK"), COLORED.quantize(16)
TURNED = COLORED.rotate(90)
_FADE = Image.fromarray(np.tile(np.arange(64, dtype=np.uint8) * 4, (48, 1)))
FADED, FADED_GREY = COLORED.copy(), GREY.copy()
FADED.putalpha(_FADE)
FADED_GREY.putalpha(_FADE)
DEEP = Image.fromarray(_RNG.integers(0, 65_536, (48, 64), np.uint16))


def saved(image: Image.Image, form: str, **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def turned(form: str, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x112] = orientation
    return saved(COLORED, form, exif=exif.tobytes(), **{"WEBP": {"lossless": True}}.get(form, {}))


FILES: dict[str, bytes] = {
    f"{form}, orientation {number}": turned(form, number)
    for form in ("JPEG", "PNG", "WEBP", "AVIF")
    for number in range(1, 9)
} | {
    "PNG": saved(COLORED, "PNG"),
    "PNG with alpha": saved(FADED, "PNG"),
    "PNG, grey": saved(GREY, "PNG"),
    "PNG, grey with alpha": saved(FADED_GREY, "PNG"),
    "PNG, 1 bit": saved(COLORED.convert("1"), "PNG"),
    "PNG, grey of 16 bits": saved(DEEP, "PNG"),
    "PNG, palette": saved(TABLED, "PNG"),
    "PNG, palette with a clear color": saved(TABLED, "PNG", transparency=3),
    "PNG, palette with alpha": saved(TABLED, "PNG", transparency=bytes(range(0, 160, 10))),
    "PNG, grey with a clear color": saved(GREY, "PNG", transparency=int(np.asarray(GREY)[0, 0])),
    "PNG with a clear color": saved(COLORED, "PNG", transparency=tuple(map(int, _NOISE[0, 0]))),
    "PNG, animated": saved(COLORED, "PNG", save_all=True, append_images=[TURNED]),
    "JPEG": saved(COLORED, "JPEG"),
    "JPEG, grey": saved(GREY, "JPEG"),
    "JPEG, CMYK": saved(INKS, "JPEG"),
    "JPEG, progressive": saved(COLORED, "JPEG", progressive=True),
    "JPEG, 4:4:4": saved(COLORED, "JPEG", subsampling=0),
    "JPEG with a profile": saved(COLORED, "JPEG", icc_profile=b"profile" * 20),
    "JPEG, several": saved(COLORED, "MPO", save_all=True, append_images=[TURNED]),
    "GIF": saved(TABLED, "GIF"),
    "GIF with a clear color": saved(TABLED, "GIF", transparency=2),
    "GIF, animated": saved(TABLED, "GIF", save_all=True, append_images=[TURNED.quantize(16)]),
    "WebP": saved(COLORED, "WEBP"),
    "WebP with alpha": saved(FADED, "WEBP", lossless=True),
    "WebP, animated": saved(FADED, "WEBP", save_all=True, append_images=[TURNED], lossless=True),
    "AVIF": saved(COLORED, "AVIF"),
    "AVIF with alpha": saved(FADED, "AVIF"),
    "BMP": saved(COLORED, "BMP"),
    "BMP with alpha": saved(FADED, "BMP"),
    "BMP, palette": saved(TABLED, "BMP"),
    "BMP, 1 bit": saved(COLORED.convert("1"), "BMP"),
}  # fmt: skip


def pixels(data: bytes) -> np.ndarray:
    picture = open_picture(data, _MOST)
    found = pixels_of(picture)
    assert found.shape == (picture.height, picture.width, 3)
    return found


def expected(data: bytes) -> np.ndarray:
    """By other means of Pillow: its own turns and its own blending."""
    image: Any = ImageOps.exif_transpose(Image.open(BytesIO(data)))
    if image.mode.startswith("I"):
        return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[..., None], 3, axis=2)
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image.convert("RGBA")).convert("RGB"))


@for_each("name", FILES)
def test_files(name: str) -> None:
    """The same as Pillow's within one level: upright, on white, the first frame."""
    difference = pixels(FILES[name]).astype(int) - expected(FILES[name])
    assert abs(difference).max() <= 1


def png(width: int, depth: int, kind: int, row: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """One row. more: chunks (name, data), before and behind IDAT in the order of their names."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + zlib.crc32(name + data).to_bytes(4)

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, 1, depth, kind, 0, 0, 0))
    before = b"".join(chunk(*each) for each in more if each[0] == b"tRNS")
    behind = b"".join(chunk(*each) for each in more if each[0] != b"tRNS")
    body = chunk(b"IDAT", zlib.compress(b"\0" + row))
    return b"\x89PNG\r\n\x1a\n" + head + before + body + behind + chunk(b"IEND", b"")


def clear(*values: int) -> tuple[bytes, bytes]:
    return b"tRNS", struct.pack(f">{len(values)}H", *values)


# A row of a PNG, whose clear color has the width of its channels -> the pixels
ROWS: dict[str, tuple[bytes, list[Any]]] = {
    "1 bit": (png(8, 1, 0, b"\x0f", clear(1)), [[0] * 3] * 4 + [[255] * 3] * 4),
    "1 bit, black is clear": (png(8, 1, 0, b"\x0f", clear(0)), [[255] * 3] * 8),
    "2 bits": (png(4, 2, 0, b"\x1b", clear(1)), [[0] * 3, [255] * 3, [170] * 3, [255] * 3]),
    "4 bits": (png(2, 4, 0, b"\x5a", clear(5)), [[255] * 3, [170] * 3]),
    "16 bits": (
        png(2, 16, 0, struct.pack(">2H", 1000, 40_000), clear(1000)), [[255] * 3, [156] * 3]
    ),
    "16 bits, the low half differs": (
        png(2, 16, 0, struct.pack(">2H", 1000, 1001), clear(1000)), [[255] * 3, [3] * 3]
    ),
    "48 bits": (
        png(2, 16, 2, struct.pack(">6H", 1000, 2000, 3000, 40_000, 0, 0), clear(1000, 2000, 3000)),
        [[255] * 3, [156, 0, 0]],
    ),
    "32 bits with alpha": (
        png(2, 16, 4, struct.pack(">4H", 40_000, 65_535, 40_000, 0)), [[156] * 3, [255] * 3]
    ),
}  # fmt: skip


@for_each("name", ROWS)
def test_a_clear_color(name: str) -> None:
    """Of each width of a channel: what it clears is white."""
    data, row = ROWS[name]
    assert pixels(data).tolist() == [row]


def test_exif_behind_the_pixels() -> None:
    """A PNG's orientation is known once it is decoded."""
    exif = Image.Exif()
    exif[0x112] = 6
    data = png(2, 8, 2, bytes([255, 0, 0, 0, 255, 0]), (b"eXIf", exif.tobytes()[6:]))
    assert pixels_of(open_picture(data, _MOST)).tolist() == [[[255, 0, 0]], [[0, 255, 0]]]


@for_each("progressive", [False, True])
def test_a_jpeg_without_its_end_marker(progressive: bool) -> None:
    """It is whole, as browsers show it. One that lacks a part of its pixels is refused."""
    data = saved(COLORED, "JPEG", progressive=progressive)
    assert data.endswith(b"\xff\xd9")
    assert pixels(data[:-2]).tolist() == pixels(data[:-1]).tolist() == pixels(data).tolist()
    for size in (len(data) - 6, len(data) * 3 // 4):
        with pytest.raises(UnreadablePictureError, match="truncated"):
            pixels(data[:size])


def test_a_turn_in_xmp_alone() -> None:
    """Browsers read the orientation of EXIF, and no other."""
    turn = b'<x xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/>'
    data = saved(COLORED, "JPEG", xmp=turn)
    assert ImageOps.exif_transpose(Image.open(BytesIO(data))).size == COLORED.size[::-1]
    assert pixels(data).shape[:2] == COLORED.size[::-1]


def test_exif_that_is_damaged() -> None:
    """The picture is shown as it is stored."""
    data = saved(COLORED, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert pixels(data).tolist() == np.asarray(Image.open(BytesIO(data))).tolist()


def test_a_frame_that_leaves_the_canvas_clear() -> None:
    """What the first frame of a GIF does not cover is white."""
    data = bytearray(saved(Image.new("P", (2, 2)), "GIF"))
    data[6:10] = struct.pack("<HH", 4, 3)  # of the canvas
    found = pixels(bytes(data))
    assert found.shape == (3, 4, 3)
    assert not found[:2, :2].any()
    assert found[2:].min() == found[:, 2:].min() == 255


# Files of one frame, which stands at their end
WHOLE = [name for name in FILES if "animated" not in name and "several" not in name]


@for_each("name", WHOLE)
def test_a_file_that_ends_early(name: str) -> None:
    """Refused with a reason, never shown in part."""
    for part in (0.01, 0.3, 0.5, 0.9):
        with pytest.raises(UnreadablePictureError, match="cannot be decoded"):
            pixels(FILES[name][: int(len(FILES[name]) * part)])


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP", "AVIF", "BMP"])
def test_too_many_pixels(form: str) -> None:
    """Refused by the head, before a pixel is decoded."""
    data = saved(Image.new("RGB", (100, 40)), form)
    assert open_picture(data, 4000).width == 100
    with pytest.raises(UnreadablePictureError, match="100 × 40 pixels, and 3999 is the most"):
        open_picture(data, 3999)


def test_other_formats() -> None:
    """No decoder that is not wanted is tried."""
    for form in ("TIFF", "ICO", "PPM", "TGA", "JPEG2000", "PCX", "SGI", "DDS", "IM"):
        with pytest.raises(UnreadablePictureError, match="its head is damaged"):
            open_picture(saved(COLORED, form), _MOST)
