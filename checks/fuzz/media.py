"""Small pictures and sounds of all formats, and what is damaged in them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial
from io import BytesIO

from PIL import Image

from tests.support.models.projectors import png, wav

_SIDE = 16


def bmp() -> bytes:
    """24 bits a pixel."""
    pixels = bytes(range(256)) * 3
    head = struct.pack("<IiiHHIIiiII", 40, _SIDE, _SIDE, 1, 24, 0, len(pixels), 0, 0, 0, 0)
    return struct.pack("<2sIHHI", b"BM", 54 + len(pixels), 0, 0, 54) + head + pixels


def gif() -> bytes:
    """Four colours; the table of codes is cleared before it grows."""
    palette = bytes([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255])
    codes = [code for place in range(_SIDE * _SIDE // 2) for code in (4, place % 4, 1)] + [5]
    bits = sum(code << 3 * place for place, code in enumerate(codes))
    data = bits.to_bytes(-(-3 * len(codes) // 8), "little")
    blocks = b"".join(
        bytes([len(data[at : at + 255])]) + data[at : at + 255] for at in range(0, len(data), 255)
    )
    head = b"GIF89a" + struct.pack("<HHBBB", _SIDE, _SIDE, 0b11110001, 0, 0) + palette
    return head + struct.pack("<BHHHHBB", 0x2C, 0, 0, _SIDE, _SIDE, 0, 2) + blocks + b"\0\x3b"


def jpeg() -> bytes:
    """Four grey blocks; each of both tables has one code."""

    def segment(marker: int, data: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, 2 + len(data)) + data

    tables = [segment(0xC4, bytes([kind, 1, *[0] * 15, 0])) for kind in (0x00, 0x10)]
    frame = struct.pack(">BHHB3B", 8, _SIDE, _SIDE, 1, 1, 0x11, 0)
    return (
        b"\xff\xd8"
        + segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")
        + segment(0xDB, b"\0" + bytes([1] * 64))
        + segment(0xC0, frame)
        + b"".join(tables)
        + segment(0xDA, bytes([1, 1, 0, 0, 63, 0]))
        + b"\0\xff\xd9"
    )


def mp3() -> bytes:
    """Silent frames of 417 bytes."""
    return (b"\xff\xfb\x90\x64" + bytes(413)) * 8


def flac() -> bytes:
    """One frame of samples as they are."""
    samples = [((number * 7919) % 20_000) - 10_000 for number in range(192)]
    info = struct.pack(">HH", 192, 192) + bytes(6)
    info += (16_000 << 44 | 0 << 41 | 15 << 36 | len(samples)).to_bytes(8) + bytes(16)
    head = bytes([0xFF, 0xF8, 0b00010101, 0b00001000, 0])
    head += bytes([_crc(head, 8, 0x07)])
    frame = head + bytes([0b00000010]) + struct.pack(f">{len(samples)}h", *samples)
    return (
        b"fLaC"
        + b"\x80"
        + len(info).to_bytes(3)
        + info
        + frame
        + _crc(frame, 16, 0x8005).to_bytes(2)
    )


def _crc(data: bytes, width: int, polynomial: int) -> int:
    value = 0
    for byte in data:
        value ^= byte << width - 8
        for _ in range(8):
            value = (value << 1) ^ (polynomial if value >> width - 1 else 0)
            value &= (1 << width) - 1
    return value


def encoded(form: str) -> bytes:
    """Noise, written by Pillow."""
    file = BytesIO()
    Image.open(BytesIO(png())).save(file, form)
    return file.getvalue()


PICTURES: dict[str, Callable[[], bytes]] = {
    "PNG": png,
    "JPEG": jpeg,
    "GIF": gif,
    "BMP": bmp,
    "WebP": partial(encoded, "WEBP"),
    "AVIF": partial(encoded, "AVIF"),
}
SOUNDS: dict[str, Callable[[], bytes]] = {"WAV": wav, "MP3": mp3, "FLAC": flac}


def damaged(data: bytes, number: int) -> bytes:
    """In one to four places: bits turned, bytes written over, cut out, doubled, or the end cut."""
    chance = random.Random(number)
    made = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        if len(made) <= 16:
            break
        # A half of all is done to the head, which says sizes and lengths.
        at = chance.randrange(min(len(made), 64) if chance.random() < 0.5 else len(made))
        match chance.randrange(6):
            case 0:
                made[at] ^= 1 << chance.randrange(8)
            case 1:
                made[at : at + 4] = chance.choice((bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff"))
            case 2:
                made[at : at + 8] = chance.randbytes(8)
            case 3:
                del made[at : at + chance.randint(1, 16)]
            case 4:
                made[at:at] = made[at : at + chance.randint(1, 64)]
            case _:
                del made[max(at, 16) :]
    return bytes(made)
