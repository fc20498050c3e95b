"""What a route says of itself beside its handler: bodies, answers, errors, examples.

The tables are in a module `described` of each API's folder. Nothing of it is imported before
somebody asks for the description.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from worker.api.common.errors import reply_of
from worker.http.replies import ErrorReply

JSON = "application/json"
EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
TEXT = "text/plain"
HTML = "text/html"

Reply = tuple[int, ErrorReply, dict[str, str]]


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """One handler's routes. Its paths, method, status and summary are the handler's own.

    handler   Litestar's
    gives     media type -> type of the answer; of a stream: types of what its events hold
    takes     type that the body is read as; None: the body is not read
    needs     fields of the body without which there is no answer
    examples  name -> body; every one of them is answered
    refuses   what the route raises
    reply_of  (status, body, headers) of that
    also      status -> type of another answer that is no error
    path      the shown path, where the handler's own cannot tell it
    params    name -> annotated type of a part of the path
    queries   name -> annotated type of what may stand behind the path
    named     events of its streams have names, and no `[DONE]` is the last
    done      `[DONE]` is the last event where they have no names
    pages     path -> what a browser is refused there, which else gets a page instead
    notes     more about it, in one or two sentences
    """

    handler: Any
    gives: Mapping[str, Any]
    takes: Any = None
    needs: tuple[str, ...] = ()
    examples: Mapping[str, Any] = {}
    refuses: tuple[Exception, ...] = ()
    reply_of: Callable[[Exception], Reply] = reply_of
    also: Mapping[int, Any] = {}
    path: str | None = None
    params: Mapping[str, Any] = {}
    queries: Mapping[str, Any] = {}
    named: bool = False
    done: bool = True
    pages: Mapping[str, tuple[Exception, ...]] = {}
    notes: str = ""

    def shown(self, path: str) -> str:
        """One of the handler's paths as OpenAPI writes it."""
        if self.path is not None:
            return self.path
        return "/".join(
            f"{part.partition(':')[0]}}}" if part.startswith("{") else part
            for part in path.split("/")
        )


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """Routes that belong together, under one heading."""

    name: str
    text: str
    routes: tuple[Described, ...]
