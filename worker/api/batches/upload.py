"""A file on its way from a multipart body to the folder, a piece at a time."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import multipart  # pyright: ignore[reportMissingTypeStubs]

from worker.database.database import full_disk
from worker.errors import RequestError, TooLargeError, UnavailableError

# The package has no types.
_library = cast("Any", multipart)

_MEDIA_TYPE = "multipart/form-data"
# Bytes of a field beside the file, and parts.
_FIELD, _PARTS = 4_096, 16
_PIECE = 1 << 20
_LONGEST_NAME = 255


class Upload:
    """What a body holds. The file's bytes are in `place` once it was read.

    name    the file's; None: there is none
    fields  of the form, all but the file
    """

    def __init__(self, place: Path, most: int) -> None:
        """most: bytes of the file"""
        self.place = place
        self.name: str | None = None
        self.num_bytes = 0
        self.fields: dict[str, str] = {}
        self._most = most
        self._field = ""
        self._text = bytearray()
        self._piece = bytearray()

    async def read(self, content_type: str, body: AsyncIterator[bytes]) -> None:
        """All of it. Raises RequestError, TooLargeError, StorageFullError."""
        kind, options = _library.parse_options_header(content_type)
        if kind != _MEDIA_TYPE or not options.get("boundary"):
            raise RequestError(
                f"A file is uploaded as {_MEDIA_TYPE}.",
                hint="Send the parts `file` and `purpose`, as OpenAI's clients do.",
            )
        try:
            parser = _library.PushMultipartParser(options["boundary"], max_segment_count=_PARTS)
            with self.place.open("xb") as out:
                async for chunk in body:
                    for event in parser.parse(chunk) if chunk else ():
                        self._take(event)
                    if len(self._piece) >= _PIECE:
                        await self._write(out)
                parser.close()
                await self._write(out, last=True)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise full_disk() from error
            told = f"The file cannot be written to --state-dir: {error.strerror}."
            raise UnavailableError(told, hint="Make the folder writable again.") from error
        except _library.MultipartError as error:
            raise RequestError(f"The body is not valid {_MEDIA_TYPE}: {error.args[0]}.") from None

    def _take(self, event: Any) -> None:
        if isinstance(event, _library.MultipartSegment):
            self._field = str(event.name)
            if event.filename is not None or event.name == "file":
                if self.name is not None or event.name != "file":
                    raise RequestError("The form has one file, named `file`.", param="file")
                name = Path(event.filename or "file").name
                self.name = "".join(c for c in name if c.isprintable())[:_LONGEST_NAME] or "file"
        elif event is None:
            if self._field != "file":
                self.fields[self._field] = self._text.decode(errors="replace")
                self._text.clear()
        elif self._field == "file":
            self.num_bytes += len(event)
            if self.num_bytes > self._most:
                raise self._too_large()
            self._piece += event
        else:
            self._text += event
            if len(self._text) > _FIELD:
                raise RequestError(f"{self._field[:50]} is too long.", param=self._field[:50])

    async def _write(self, out: BinaryIO, *, last: bool = False) -> None:
        piece, self._piece = self._piece, bytearray()

        def write() -> None:
            out.write(piece)
            if last:
                out.flush()
                os.fsync(out.fileno())

        await asyncio.to_thread(write)

    def _too_large(self) -> TooLargeError:
        return TooLargeError(
            "The file is larger than this worker stores.",
            hint=f"--batch-file sets how much; now that is {self._most >> 20} MiB.",
        )
