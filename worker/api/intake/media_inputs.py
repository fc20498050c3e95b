"""The pictures and sounds of one request: found while its messages are read, put into its prompt.

In the text that a template makes, a mark of letters and digits stands for each of them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Set
from functools import cache, cached_property
from typing import TypeVar

import msgspec
import numpy as np

from worker.api.intake.facts import AddressReader, MediumReader
from worker.api.intake.media_formats import MEDIUM_KINDS, check_format
from worker.budget import UNBOUNDED, Budget
from worker.engine.request import Medium
from worker.errors import QueueFullError, RequestError, UnavailableError
from worker.limits import MEDIA

_DATA_URL = re.compile(r"data:[\w.+-]*/?[\w.+-]*(?:;[^,;]{0,100}){0,4},", re.IGNORECASE)
MediumPieces = tuple[Medium | tuple[int, ...], ...]
T = TypeVar("T")
_NO_BYTES = "it holds no bytes."
_MOST_TOLD = 16


class ShownMedium(msgspec.Struct, frozen=True):
    """A picture or sound of a request; digest: of its data, as the projector reads it."""

    kind: str
    data: bytes
    digest: bytes


class MediaInputs:
    """Those of one request.

    left_out  a sentence for each reason for which a medium became a note in brackets
    """

    def __init__(self, reader: MediumReader | None = None, budget: Budget = UNBOUNDED) -> None:
        """
        reader  None where the model reads text only
        budget  of the request
        """
        self.budget = budget
        self._reader = reader
        self._held: list[ShownMedium] = []
        self._numbers: dict[tuple[str, str], int] = {}  # of kinds and addresses that were read
        self._asked: dict[int, tuple[str, str]] = {}
        self._reasons: dict[tuple[str, str], str] = {}  # why nothing is shown of such an address
        self.left_out: dict[str, None] = {}

    @cached_property
    def _prefix(self) -> str:
        return f"medium{secrets.token_hex(8)}n"

    @cached_property
    def _marks(self) -> re.Pattern[str]:
        return re.compile(rf"{self._prefix}(\d+)z")

    @cached_property
    def _addresses(self) -> AddressReader:
        assert self._reader is not None
        return self._reader.addresses()

    def leave_out(self, kind: str, addresses: Iterable[str] = (), why: str | None = None) -> None:
        """A medium becomes a note in brackets: `mark` found nothing at its addresses, or why."""
        for each in addresses:
            why = why or self._reasons.get((kind, each))
        self._tell(kind, why or (_NO_BYTES if self.takes(kind) else f"{self.reads(kind)}."))

    def _tell(self, kind: str, why: str) -> None:
        noun = MEDIUM_KINDS[kind].noun if kind in MEDIUM_KINDS else "A medium"
        if len(self.left_out) < _MOST_TOLD:
            self.left_out.setdefault(f"{noun} is left out: {why}")

    def reads(self, kind: str) -> str:
        """What the model reads beside media of this kind, as an error says it."""
        is_text = not any(map(self.takes, MEDIUM_KINDS))
        return f"this model reads {'text only' if is_text else f'no {kind}'}"

    def takes(self, kind: str) -> bool:
        """Whether the model sees, or hears, such a medium."""
        return self._reader is not None and kind in self._reader.ready.kinds

    def mark(self, kind: str, address: str, asked: tuple[str, str] | None = None) -> str | None:
        """The mark of a medium whose bytes stand in an address, or in its place as base64, or are
        where it leads; None where they are not, or cannot be read, which `warnings` tells.

        asked  the question is about it, which stands there, in this field: what cannot be read is
               a RequestError, here or in `prompt`
        Blocks, and raises RequestError for too many, too; see also `Budget.make_way`.
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
        return f"{self._prefix}{number}z"

    def _hold(self, kind: str, address: str, asked: tuple[str, str] | None) -> int | None:
        """Its number; see `mark`."""
        assert self._reader is not None
        found = _DATA_URL.match(address)
        leads = found is None and "://" in address[:16]
        if leads and not self._addresses.allows(address):
            self._reasons[kind, address] = f"{address[:200]} is not read by this worker."
            return None
        if leads and not self._addresses.knows(address):
            self.budget.make_way("media")
        try:
            if leads:
                data = self._addresses.read(address)
            else:
                data = _decode(address[found.end() if found else 0 :])
            check_format(data, kind)
        except RequestError as error:
            if asked is None:
                self._reasons[kind, address] = error.message
                return None
            raise _about(error, asked) from None
        medium = ShownMedium(kind, data, self._reader.digest(data))
        if medium not in self._held:
            if len(self._held) >= MEDIA.most:
                raise RequestError(
                    f"A request may show {MEDIA.most} images and audio files.",
                    param=asked and asked[1],
                )
            self._held.append(medium)
        number = self._numbers[kind, address] = self._held.index(medium)
        return number

    def lines(self, texts: Iterable[str]) -> str:
        """Texts, a line each; none ends or begins beside a mark, which is a part of the text
        around."""
        made = ""
        for text in texts:  # which may be made only now, and their marks with them
            made += text if not made or self._is_between(made, text) else f"\n{text}"
        return made

    def _is_between(self, made: str, text: str) -> bool:
        """Whether a mark, and nothing else, stands on one side of the place between two texts."""
        if not self._held:
            return False
        is_mark = self._marks.fullmatch
        return bool(is_mark(text) or is_mark(made[max(0, made.rfind(self._prefix)) :]))

    @property
    def is_empty(self) -> bool:
        return not self._held

    def prompt(
        self, text: str, tokenize: Callable[..., list[int]], most: int
    ) -> tuple[str, list[int], tuple[Medium, ...]]:
        """A text with marks: as people read it, its tokens, and the media that stand among them.
        What cannot be read is a note in brackets, unless the question is about it.

        tokenize  a stretch of text; special tokens are added to the first one
        most      tokens and vectors; where there are more, which no context holds, no vectors are
                  made, and negative numbers stand for them
        Blocks, and raises RequestError; see also `Budget.make_way`.
        """
        assert self._reader is not None
        shown = set(map(int, self._marks.findall(text)))
        if not all(self._reader.knows(self._held[number].digest) for number in shown):
            self.budget.make_way("media")
        tokenize = cache(tokenize)
        counts = self._each(shown, self._reader.count)
        room: dict[int, MediumPieces] = {
            number: ((-1,) * count,) for number, count in counts.items()
        }
        told = self._with_notes(text, shown - room.keys())
        tokens, media = self._splice(told, room, tokenize)
        if len(tokens) <= most:
            read = self._each(room.keys(), self._reader.read)
            told = self._with_notes(told, room.keys() - read.keys())
            tokens, media = self._splice(told, read, tokenize)
        return self._with_notes(told, shown), tokens, tuple(media)

    def _splice(
        self, text: str, pieces: Mapping[int, MediumPieces], tokenize: Callable[..., list[int]]
    ) -> tuple[list[int], list[Medium]]:
        """The text's tokens with the pieces of media in the place of their marks."""
        tokens: list[int] = []
        media: list[Medium] = []
        for place, part in enumerate(self._marks.split(text)):
            if place % 2:
                digest = self._held[int(part)].digest
                for number, piece in enumerate(pieces[int(part)]):
                    if isinstance(piece, Medium):
                        media.append(msgspec.structs.replace(piece, start=len(tokens)))
                        tokens += _ids(digest, number, len(piece.vectors))
                    else:
                        tokens += piece
            elif part or not place:
                tokens += tokenize(part, add_special=not place)
        return tokens, media

    def _each(self, numbers: Set[int], read: Callable[[bytes, bytes, str], T]) -> dict[int, T]:
        """What the reader says of these media, without those that cannot be read. Raises
        RequestError where the question is about such a one."""
        found: dict[int, T] = {}
        for number in sorted(numbers):
            medium = self._held[number]
            try:
                found[number] = read(medium.digest, medium.data, medium.kind)
            except (UnavailableError, QueueFullError):
                raise
            except RequestError as error:
                if number in self._asked:
                    raise _about(error, self._asked[number]) from None
                self._tell(medium.kind, error.message)
        return found

    def _with_notes(self, text: str, numbers: Set[int]) -> str:
        """With notes in brackets in the place of these."""

        def note(mark: re.Match[str]) -> str:
            number = int(mark[1])
            return f"[{self._held[number].kind}]" if number in numbers else mark[0]

        return self._marks.sub(note, text)


def _about(error: RequestError, asked: tuple[str, str]) -> RequestError:
    where, param = asked
    return RequestError(f"{where}: {error.message}", param=param, hint=error.hint, code=error.code)


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(
            "An image or audio is not valid base64.",
            hint="Send data:image/png;base64,… or its bytes.",
        ) from None


def _ids(digest: bytes, piece: int, count: int) -> list[int]:
    """What stands for a piece's vectors among the tokens: negative numbers made from the hash."""
    drawn = hashlib.shake_128(digest + piece.to_bytes(4)).digest(4 * count)
    return (-1 - (np.frombuffer(drawn, np.int32) & 0x7FFFFFFF).astype(np.int64)).tolist()
