"""An answer that is there as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

HeaderFields = list[tuple[bytes, bytes]]


class WholeAnswer(NamedTuple):
    """fields: of its header, with the body's length where there is one"""

    status: int
    fields: HeaderFields
    body: bytes


# Of a request's ASGI scope; None: an application answers it.
AtOnce = Callable[[Any], WholeAnswer | None]


async def send_whole(send: Any, answer: WholeAnswer) -> None:
    status, fields, body = answer
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})
