"""GET and DELETE /v1/streams/{id}: streams that their clients may leave and come back to."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Response, delete, get
from litestar.types import ASGIApp

from worker.api.answer.errors import json_response
from worker.api.answer.kept_stream import KeptStreams, StreamReading, number_after
from worker.api.described import EVENTS, JSON, LINES, Api, Described
from worker.api.intake.body import HttpRequest
from worker.api.intake.origins import Asker
from worker.requests.record import current_owner


class StreamDeleted(msgspec.Struct):
    """It has ended, and its events are gone."""

    id: str
    object: str = "stream"
    deleted: bool = True


@get("/v1/streams/{stream_id:str}", summary="The rest of a stream")
async def rest_of_stream(
    request: HttpRequest, streams: KeptStreams, stream_id: str, after: str = ""
) -> ASGIApp:
    """Its events behind the last one that the client has, then those that come."""
    kept = streams.get(stream_id, current_owner())
    text = after or request.headers.get("last-event-id", "")
    return StreamReading(streams, kept, number_after(text))


@delete("/v1/streams/{stream_id:str}", status_code=200, summary="Cancel a stream")
async def delete_stream(streams: KeptStreams, stream_id: str) -> Response[bytes]:
    """Its answer ends; who reads it gets an error as the last event."""
    streams.drop(stream_id, current_owner())
    return json_response(StreamDeleted(stream_id))


_ID: dict[str, Any] = {"stream_id": "Of the header `X-Stream-Id`."}

API = Api(
    name="Streams",
    text="Streams asked for with `X-Resume: on`, which go on while their client is away.",
    routes=(
        Described(
            handler=rest_of_stream,
            asker=Asker.NAMED,
            gives={EVENTS: Any, LINES: Any},
            params=_ID,
            queries={
                "after": "The id of an event: those behind it. Not given: `Last-Event-ID`, else "
                "all. Lines of JSON are counted from 0."
            },
            notes="Events are those of the answer's own API.",
        ),
        Described(
            handler=delete_stream, asker=Asker.NAMED, gives={JSON: StreamDeleted}, params=_ID
        ),
    ),
)
