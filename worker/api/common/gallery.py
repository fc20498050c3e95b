"""The pictures and sounds of one request: found while its messages are read, put into its prompt.

In the text that a template makes, a mark of letters and digits stands for each of them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Set
from contextvars import ContextVar

import msgspec
import numpy as np

from worker.engine.request import Medium
from worker.errors import RequestError, UnavailableError
from worker.grammar.constraint import IS_PATIENT, ImpatientError
from worker.lifecycle.addresses import MediaAddresses
from worker.lifecycle.media import MediaReader
from worker.limits import MEDIA, PIXELS

_DATA_URL = re.compile(r"data:[\w.+-]*/?[\w.+-]*(?:;[^,;]{0,100}){0,4},", re.IGNORECASE)
# The first bytes of formats that are read -> their kind, as a hint names it.
_FORMATS: tuple[tuple[bytes, int, str, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, "PNG", "image"),
    (b"\xff\xd8\xff", 0, "JPEG", "image"),
    (b"GIF8", 0, "GIF", "image"),
    (b"BM", 0, "BMP", "image"),
    (b"WAVE", 8, "WAV", "audio"),
    (b"fLaC", 0, "FLAC", "audio"),
    (b"ID3", 0, "MP3", "audio"),
    (b"\xff\xfb", 0, "MP3", "audio"),
    (b"\xff\xf3", 0, "MP3", "audio"),
    (b"\xff\xf2", 0, "MP3", "audio"),
)
_TAKEN = {"image": "PNG, JPEG, GIF or BMP", "audio": "WAV, MP3 or FLAC"}
Tokenize = Callable[[str, bool], list[int]]


class UnreadMediaError(ImpatientError):
    """A picture or sound has to be read first."""


class ShownMedium(msgspec.Struct, frozen=True):
    """A picture or sound of a request; digest: of its data, as the projector reads it."""

    kind: str
    data: bytes
    digest: bytes


class Gallery:
    """What one request shows."""

    def __init__(self, reader: MediaReader) -> None:
        self._reader = reader
        self._mark = f"medium{secrets.token_hex(8)}n"
        self._marks = re.compile(rf"{self._mark}(\d+)z")
        self._held: list[ShownMedium] = []
        self._numbers: dict[tuple[str, str], int] = {}  # of kinds and addresses that were read
        self._asked: dict[int, tuple[str, str]] = {}
        self._addresses = MediaAddresses(reader.settings)

    def takes(self, kind: str) -> bool:
        """Whether the model sees, or hears, such a medium."""
        ready = self._reader.ready
        return {"image": ready.sees, "audio": ready.hears}.get(kind, False)

    def shown(self, kind: str, address: str, asked: tuple[str, str] | None = None) -> str | None:
        """The mark of a medium whose bytes stand in an address, or in its place as base64, or are
        where it leads; None where they are not, or cannot be read.

        asked  the question is about it, which stands there, in this field: what cannot be read is
               a RequestError, here or in `prompt`
        Raises RequestError for too many, too, and ImpatientError where it takes long.
        """
        if not self.takes(kind):
            return None
        number = self._numbers.get((kind, address))
        if number is None:
            number = self._hold(kind, address, asked)
        if number is None:
            return None
        if asked is not None:
            self._asked[number] = asked
        return f"{self._mark}{number}z"

    def _hold(self, kind: str, address: str, asked: tuple[str, str] | None) -> int | None:
        """Its number; see `shown`."""
        found = _DATA_URL.match(address)
        leads = found is None and "://" in address[:16]
        if leads and not self._addresses.allows(address):
            return None
        if leads and not self._addresses.knows(address) and not IS_PATIENT.get():
            raise UnreadMediaError
        try:
            if leads:
                data = self._addresses.read(address)
            else:
                data = _decoded(address[found.end() if found else 0 :])
            check_format(data, kind)
        except RequestError as error:
            if asked is None:
                return None
            raise _about(error, asked) from None
        medium = ShownMedium(kind, data, self._reader.digest(data))
        if medium not in self._held:
            if len(self._held) >= MEDIA.most:
                raise RequestError(
                    f"A request may show {MEDIA.most} pictures and sounds.",
                    param=asked and asked[1],
                )
            self._held.append(medium)
        number = self._numbers[kind, address] = self._held.index(medium)
        return number

    def is_mark(self, text: str) -> bool:
        """Whether it is one, and nothing else."""
        return self._marks.fullmatch(text) is not None

    def ends_with_mark(self, text: str) -> bool:
        """Whether one stands at its end."""
        return self._marks.fullmatch(text[text.rfind(self._mark) :]) is not None

    @property
    def is_empty(self) -> bool:
        return not self._held

    def prompt(
        self, text: str, tokenize: Tokenize, most: int
    ) -> tuple[str, list[int], tuple[Medium, ...]]:
        """A text with marks: as people read it, its tokens, and the media that stand among them.
        What cannot be read is a note in brackets, unless the question is about it.

        tokenize  a stretch of text, and whether it is the first one
        most      vectors; where there are more, which no context holds, they are only counted
        Raises RequestError, and ImpatientError where it takes long.
        """
        shown = set(map(int, self._marks.findall(text)))
        if not IS_PATIENT.get() and not all(
            self._reader.knows(self._held[n].digest) for n in shown
        ):
            raise UnreadMediaError
        read: dict[int, tuple[Medium | tuple[int, ...], ...]] = {}
        for number in shown:
            if (pieces := self._read(number)) is None:
                continue
            rows = [len(piece.vectors) for piece in pieces if isinstance(piece, Medium)]
            most -= sum(rows)
            if most < 0:
                pieces = tuple(
                    (-1,) * len(piece.vectors) if isinstance(piece, Medium) else piece
                    for piece in pieces
                )
            read[number] = pieces
        text = self._noted(text, shown - read.keys())
        tokens: list[int] = []
        media: list[Medium] = []
        for place, part in enumerate(self._marks.split(text)):
            if place % 2:
                digest = self._held[int(part)].digest
                for number, piece in enumerate(read[int(part)]):
                    if isinstance(piece, Medium):
                        media.append(msgspec.structs.replace(piece, start=len(tokens)))
                        tokens += _ids(digest, number, len(piece.vectors))
                    else:
                        tokens += piece
            elif part or not place:
                tokens += tokenize(part, not place)
        return self._noted(text, shown), tokens, tuple(media)

    def _read(self, number: int) -> tuple[Medium | tuple[int, ...], ...] | None:
        try:
            medium = self._held[number]
            return self._reader.read(medium.digest, medium.data)
        except UnavailableError:
            raise
        except RequestError as error:
            if number in self._asked:
                raise _about(error, self._asked[number]) from None
            return None

    def _noted(self, text: str, numbers: Set[int]) -> str:
        """With notes in brackets in the place of these."""

        def note(mark: re.Match[str]) -> str:
            number = int(mark[1])
            return f"[{self._held[number].kind}]" if number in numbers else mark[0]

        return self._marks.sub(note, text)


# Of the request whose body is read in this thread; None: the model only reads text.
GALLERY: ContextVar[Gallery | None] = ContextVar("gallery", default=None)


def in_lines(texts: Iterable[str]) -> str:
    """Texts, a line each; none ends or begins beside a mark, which is a part of the text around."""
    gallery, made = GALLERY.get(), ""
    for text in texts:
        is_beside = gallery is not None and (gallery.is_mark(text) or gallery.ends_with_mark(made))
        made += text if is_beside or not made else f"\n{text}"
    return made


def _about(error: RequestError, asked: tuple[str, str]) -> RequestError:
    where, param = asked
    return RequestError(
        f"{where}: {error.message}", param=param, hint=error.hint, code=error.code
    )  # fmt: skip


def check_format(data: bytes, kind: str) -> None:
    """Raise RequestError for bytes that are no such medium, by their first ones, or a picture of
    too many pixels."""
    for begin, at, name, found in _FORMATS:
        if data[at : at + len(begin)] == begin and found == kind:
            width, height = _size(data, name)
            if width * height > PIXELS.most:
                raise RequestError(
                    f"A picture of {width} × {height} pixels is too large: {PIXELS.most} is the "
                    "most.",
                    hint="Make it smaller; the model sees far fewer.",
                )
            return
    what = {"image": "picture", "audio": "sound"}[kind]
    raise RequestError(
        f"The {what} is of no known format.", hint=f"Send it as {_TAKEN[kind]}."
    )  # fmt: skip


def _size(data: bytes, name: str) -> tuple[int, int]:
    """Width and height that a picture's head tells; (0, 0) where it tells none, and for sounds."""
    if name == "PNG":
        return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    if name == "GIF":
        return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if name == "BMP":
        return int.from_bytes(data[18:22], "little"), abs(
            int.from_bytes(data[22:26], "little", signed=True)
        )
    return _jpeg_size(data) if name == "JPEG" else (0, 0)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4])
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        at += 2 + length
    return 0, 0


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(
            "A picture or sound is no base64.", hint="Send data:image/png;base64,… or its bytes."
        ) from None


def _ids(digest: bytes, piece: int, count: int) -> list[int]:
    """What stands for a piece's vectors among the tokens: negative numbers made from the hash."""
    drawn = hashlib.shake_128(digest + piece.to_bytes(4)).digest(4 * count)
    return (-1 - (np.frombuffer(drawn, np.int32) & 0x7FFFFFFF).astype(np.int64)).tolist()
