"""GET /v1/streams/{id}, over streams without an engine."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from worker.api.answer.kept_stream import KeptStreams
from worker.api.streams import rest_of_stream
from worker.errors import NotFoundError


def test_all_or_none() -> None:
    """Without a number a client gets all events; once the first ones are dropped it hears so, and
    takes no part of an answer for the whole."""

    async def run(_: Any, __: Any, send: Any) -> None:
        fields = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        for _ in range(40):
            event = b"data: %b\n\n" % (b"x" * 100)
            await send({"type": "http.response.body", "body": event, "more_body": True})

    async def ask(bytes_kept: int) -> None:
        streams = KeptStreams(100, most_bytes=bytes_kept)
        streams.open("name", "", run, lambda: None, outlives=True)
        await asyncio.sleep(0)
        request: Any = SimpleNamespace(headers={})
        await rest_of_stream.fn(request, streams, "name")

    asyncio.run(ask(100_000))
    with pytest.raises(NotFoundError, match="not kept any more"):
        asyncio.run(ask(3_000))
