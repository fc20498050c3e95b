"""GET /v1/requests and POST /v1/requests/{id}/cancel."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

from litestar import Response, get, post
from msgspec import Meta

from worker.api.common.body import HttpRequest
from worker.api.common.described import EVENTS, JSON, Api, Described
from worker.api.common.errors import event_stream, json_response
from worker.api.common.origins import check_origin
from worker.api.requests.request_view import MAX_INTERVAL_S, MIN_INTERVAL_S, RequestView
from worker.errors import ForbiddenError, NotFoundError, RequestError
from worker.http import paths
from worker.lifecycle.worker import Worker
from worker.requests.journal import Journal
from worker.requests.views import LiveReply, RequestCancelled

_INTERVAL_S = 0.5


@get(paths.REQUESTS, summary="What the worker does")
async def live_requests(
    request: HttpRequest, lookout: RequestView, stream: str = "", interval: str | None = None
) -> Response[Any]:
    """All at once, or as events again and again."""
    seconds = _seconds_of(interval)
    accepted = request.headers.get("accept", "")
    if stream.lower() in ("1", "true") or (not stream and "text/event-stream" in accepted):
        lookout.latest(MIN_INTERVAL_S)  # what it raises comes before the stream begins
        return event_stream(lookout.events(seconds))
    return Response(lookout.latest(0), media_type="application/json")


@post(paths.REQUESTS + "/{request_id:str}/cancel", status_code=200, summary="Cancel a request")
async def cancel_request(
    request: HttpRequest, request_id: str, worker: Worker, journal: Journal
) -> Response[bytes]:
    """Whatever it does: waiting, reading or writing."""
    origin = request.headers.get("origin", "")
    is_own = origin.partition("://")[2] == request.headers.get("host")
    if not is_own:
        check_origin(request, worker)
    name = unquote(request_id)  # the gate leaves it as it was sent: an id may hold a slash
    return json_response(RequestCancelled(name, True, journal.cancel(name)))


def _seconds_of(text: str | None) -> float:
    try:
        seconds = _INTERVAL_S if text is None else float(text)
    except ValueError:
        seconds = 0.0
    if not MIN_INTERVAL_S <= seconds <= MAX_INTERVAL_S:
        raise RequestError(
            f"interval must be from {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g} seconds.",
            param="interval",
        )
    return seconds


_SECONDS = f"from {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g}"

API = Api(
    name="Requests",
    text="What the worker does now and did last, and how to end it.",
    routes=(
        Described(
            handler=live_requests,
            gives={JSON: LiveReply, EVENTS: LiveReply},
            queries={
                "stream": "`1` or `true`: events; another text: all at once. Not given: "
                "what `Accept` asks for.",
                "interval": Annotated[
                    float,
                    Meta(
                        ge=MIN_INTERVAL_S,
                        le=MAX_INTERVAL_S,
                        description="Seconds from one event to the next.",
                        extra_json_schema={"default": 0.5},
                    ),
                ],
            },
            refuses=(RequestError(f"`interval` is no number {_SECONDS}."),),
            done=False,
            notes="Events end when the worker is about to leave.",
        ),
        Described(
            handler=cancel_request,
            gives={JSON: RequestCancelled},
            params={"request_id": "Its `x-request-id`, percent-encoded."},
            refuses=(
                NotFoundError("No request of this id runs or waits.", code="request_not_found"),
                ForbiddenError(
                    "Without a key only pages of this machine and of the worker may ask."
                ),
            ),
            notes="Its client gets an error: status 499, or in a stream the last event.",
        ),
    ),
)
