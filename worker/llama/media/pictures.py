"""Files of pictures to pixels, as a browser shows them: upright, on white, in sRGB.

The colours of a file that has no profile, or another one than sRGB, are taken as they are.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any, NamedTuple, cast

import numpy as np
from PIL import AvifImagePlugin, Image, ImageFile, UnidentifiedImageError, WebPImagePlugin

# Image.open knows these, and those whose module was imported.
_FORMATS = [
    *("PNG", "JPEG", "GIF", "BMP"),
    *(("WEBP",) if WebPImagePlugin.SUPPORTED else ()),
    *(("AVIF",) if AvifImagePlugin.SUPPORTED else ()),
]
_ORIENTATION = 0x0112  # the tag of EXIF
_FLIPS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# The end marker of a JPEG, and bits of which no decoder makes what it makes of zeros.
_END, _NO_END = b"\xff\xd9", b"\xaa" * 64
_SIDEWAYS = 5  # the first of those that swap width and height
# Formats of a PNG's grey pixels -> what Pillow multiplies them by.
_NARROW = {"L;2": 85, "L;4": 17}
_ALPHA = ("RGBA", "LA", "PA", "RGBa", "La")

Image.preinit()  # before the keeper forks, so that no picture waits for imports
Image.MAX_IMAGE_PIXELS = None  # `open_picture` has a bound of its own
ImageFile.LOAD_TRUNCATED_IMAGES = False


class UnreadablePictureError(Exception):
    """The text says why: half a sentence."""


class PictureFile(NamedTuple):
    """A file whose head was read.

    width, height  as it is shown, upright
    data           the file
    """

    width: int
    height: int
    image: ImageFile.ImageFile
    data: bytes


def open_picture(data: bytes, most: int) -> PictureFile:
    """Nothing is decoded yet. most: pixels. Raises UnreadablePictureError."""
    try:
        image = Image.open(io.BytesIO(data), formats=_FORMATS)
    except MemoryError:
        raise
    except Exception as error:
        raise UnreadablePictureError(_why(error)) from error
    width, height = image.size
    if width * height > most:
        raise UnreadablePictureError(
            f"it has {width} × {height} pixels, and {most} is the most: make it smaller, the "
            "model sees far fewer"
        )
    # Whether EXIF stands behind the pixels of a PNG, decoding tells.
    if (image.format != "PNG" or "exif" in image.info) and _orientation(image) >= _SIDEWAYS:
        width, height = height, width
    return PictureFile(width, height, image, data)


def pixels_of(picture: PictureFile) -> np.ndarray:
    """uint8 [height, width, 3]; of several frames the first. Raises UnreadablePictureError."""
    image = picture.image
    box, rawmode = next(((tile[1], tile[3]) for tile in image.tile), (None, None))
    try:
        image = _load(image, picture.data)
        _narrow_clear_color(image, rawmode)
        shown = _on_white(image)
    except MemoryError:
        raise
    except Exception as error:
        raise UnreadablePictureError(_why(error)) from error
    if (
        image.format == "GIF" and box and box != (0, 0, *image.size)
    ):  # it leaves some of the canvas clear
        frame, shown = shown.crop(box), Image.new("RGB", image.size, "white")
        shown.paste(frame, box)
    if (flip := _FLIPS.get(_orientation(image))) is not None:
        shown = shown.transpose(flip)
    return np.asarray(shown)


def _load(image: ImageFile.ImageFile, data: bytes) -> ImageFile.ImageFile:
    """With its pixels. A JPEG that lacks its end marker is whole if no pixel depends on what would
    follow."""
    try:
        image.load()
    except OSError:
        if image.format != "JPEG":
            raise
        body = data.rstrip(b"\xff")  # half a marker, or half of what stands for such a byte
        made: list[ImageFile.ImageFile] = []
        with contextlib.suppress(OSError):
            for follows in (b"", _NO_END):
                ended = Image.open(io.BytesIO(body + follows + _END), formats=["JPEG"])
                ended.load()
                made.append(ended)
        if len(made) < 2 or made[0].tobytes() != made[1].tobytes():
            raise
        return made[0]
    return image


def _narrow_clear_color(image: Image.Image, rawmode: Any) -> None:
    """The clear color of a PNG has its channels' width in the file, and Pillow widens or narrows
    the pixels to 8 bits without it."""
    clear = image.info.get("transparency")
    if isinstance(clear, int) and rawmode in _NARROW:
        image.info["transparency"] = clear * _NARROW[rawmode]
    elif isinstance(clear, tuple) and rawmode == "RGB;16B":
        image.info["transparency"] = tuple(each >> 8 for each in cast("tuple[int, ...]", clear))


def _on_white(image: Image.Image) -> Image.Image:
    clear = image.info.get("transparency")
    if image.mode.startswith("I;16"):  # Pillow would clip it
        wide = np.asarray(image)
        narrow = (wide >> 8).astype(np.uint8)
        if clear is not None:
            narrow[wide == clear] = 255
        return Image.fromarray(narrow).convert("RGB")
    if clear is None and image.mode not in _ALPHA:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    shown = Image.new("RGB", image.size, "white")
    shown.paste(layer, mask=layer)
    return shown


def _orientation(image: Image.Image) -> int:
    """1 to 8, of EXIF alone: browsers do not turn a picture by its XMP. If it cannot be read, 1."""
    exif = Image.Exif()
    try:
        exif.load(image.info.get("exif", b""))
        found: Any = exif.get(_ORIENTATION)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  damaged EXIF raises whatever it comes to
        return 1
    return found if found in _FLIPS else 1


def _why(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "it cannot be decoded: its head is damaged"
    text = str(error).removeprefix("image file is ").rstrip(".")
    return f"it cannot be decoded: {text or type(error).__name__}"
