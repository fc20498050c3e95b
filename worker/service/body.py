"""A request's body: bounded, timed, decoded. What is wrong is a 400 that names the field."""

from __future__ import annotations

import asyncio
import re
from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.exceptions import InternalServerException

from worker.errors import LeftError, RequestError, TooLargeError

MAX_BODY_BYTES = 16 * 2**20
# Lists, objects and fields: a million empty lists take 150 ms to decode, megabytes of text few.
MAX_PARTS = 2**19
_LARGE = 2**18
_PAUSE_S = 0.01
READ_TIMEOUT_S = 30.0

T = TypeVar("T", bound=msgspec.Struct)
_decoding = asyncio.Lock()
_PLACE = re.compile(r" - at `\$\.?([^`]*)`")


class SlowBodyError(RequestError):
    """The body did not arrive in time."""

    http_status = 408
    default_code = "timeout"


async def read_json(request: Request[Any, Any, Any], shape: type[T]) -> T:
    """The body as `shape`. Raises RequestError; LeftError where the client left."""
    data = bytearray()
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MAX_BODY_BYTES:
                    raise TooLargeError(f"The body is larger than {MAX_BODY_BYTES} bytes.")
    except TimeoutError:
        raise SlowBodyError(f"The body did not arrive in {READ_TIMEOUT_S:.0f} s.") from None
    except InternalServerException:  # what Litestar calls it
        raise LeftError("The client left before its body was whole.") from None
    if len(data) <= _LARGE:
        return _decoded(data, shape)
    # Decoding holds up the event loop: between large bodies that come together others have a turn.
    async with _decoding:
        await asyncio.sleep(_PAUSE_S)
        if sum(map(data.count, (b"[", b"{", b":"))) > MAX_PARTS:
            raise TooLargeError(f"The body holds more than {MAX_PARTS} lists, objects and fields.")
        return _decoded(data, shape)


def _decoded(data: bytearray, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.ValidationError as error:
        text = str(error)
        place = _PLACE.search(text)
        field = re.split(r"[.\[]", place[1])[0] if place else ""
        where = (place[1] if place else "") or "the body"
        sentence = text[: place.start()] if place else text
        raise RequestError(f"{sentence}, in {where}.", param=field or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"The body is not valid JSON: {error}.") from None
