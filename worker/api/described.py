"""Routes: each with what is said of it beside its handler: body, answers, examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from worker.api.answer.errors import Reply, reply_of
from worker.api.intake.origins import Asker

JSON = "application/json"
EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
TEXT = "text/plain"
HTML = "text/html"
FORM = "multipart/form-data"


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """One handler's routes. Its paths, method, status and summary are the handler's own.

    handler   Litestar's
    asker     who may ask without a key; None: everybody, for what changes nothing
    wakes     whether the model must be in memory; None: if a body is read
    gives     media type -> type of the answer; of a stream: types of what its events hold
    takes     type that the body is read as; None: the body is not read
    is_form   the body is multipart/form-data, not JSON
    needs     fields of the body without which there is no answer
    examples  name -> body; every one of them is answered
    also      status -> type of another answer that is no error
    path      the shown path, where the handler's own cannot tell it
    params    name -> what a part of the path is: a text, or a type with a description
    queries   name -> what may stand behind the path, likewise
    named     events of its streams have names, and no `[DONE]` is the last
    done      `[DONE]` is the last event where they have no names
    notes     more about it, in one or two sentences
    """

    handler: Any
    asker: Asker | None = None
    wakes: bool | None = None
    gives: Mapping[str, Any]
    takes: Any = None
    is_form: bool = False
    needs: tuple[str, ...] = ()
    examples: Mapping[str, Any] = {}
    also: Mapping[int, Any] = {}
    path: str | None = None
    params: Mapping[str, Any] = {}
    queries: Mapping[str, Any] = {}
    named: bool = False
    done: bool = True
    notes: str = ""

    def __post_init__(self) -> None:
        changes = not self.handler.http_methods <= {"GET", "HEAD", "OPTIONS"}
        may = self.asker is not None
        assert may or not (changes or self.needs_model), f"who may ask for {self.handler.paths}?"

    @property
    def needs_model(self) -> bool:
        """Whether a model that sleeps is woken."""
        return self.takes is not None if self.wakes is None else self.wakes

    def openapi_path(self, path: str) -> str:
        """One of the handler's paths as OpenAPI writes it."""
        if self.path is not None:
            return self.path
        return "/".join(
            f"{part.partition(':')[0]}}}" if part.startswith("{") else part
            for part in path.split("/")
        )


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """Routes that belong together, under one heading.

    reply_of  (status, body, headers) of what they raise
    """

    name: str
    text: str
    routes: tuple[Described, ...]
    reply_of: Callable[[Exception], Reply] = reply_of
