"""The requests at work, for the description of the API."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from worker.api.common.described import EVENTS, JSON, Api, Described
from worker.api.requests.request_view import MAX_INTERVAL_S, MIN_INTERVAL_S
from worker.api.requests.routes import cancel_request, live_requests
from worker.errors import ForbiddenError, NotFoundError, RequestError
from worker.requests.views import LiveReply, RequestCancelled

_SECONDS = f"from {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g}"

API = Api(
    name="Requests",
    text="What the worker does now and did last, and how to end it.",
    routes=(
        Described(
            handler=live_requests,
            gives={JSON: LiveReply, EVENTS: LiveReply},
            queries={
                "stream": Annotated[
                    str,
                    Meta(
                        description="`1` or `true`: events; another text: all at once. Not given: "
                        "what `Accept` asks for."
                    ),
                ],
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
            params={
                "request_id": Annotated[
                    str, Meta(description="Its `x-request-id`, percent-encoded.")
                ]
            },
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
