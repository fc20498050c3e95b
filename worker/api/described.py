"""Routes: each with what is said of it beside its handler: bodies, answers, errors, examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from worker import limits
from worker.api.answer.errors import Reply, reply_of
from worker.api.intake.body import CodedBodyError, SlowBodyError
from worker.api.intake.origins import Asker
from worker.errors import (
    CancelledError,
    ContextLengthError,
    DecodeError,
    ForbiddenError,
    NotAuthenticatedError,
    QueueFullError,
    RequestError,
    TooLargeError,
    UnavailableError,
    WorkerError,
)
from worker.http import paths
from worker.http.hosts import ForeignHostError
from worker.lifecycle.state import State

JSON = "application/json"
EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
TEXT = "text/plain"
HTML = "text/html"


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """One handler's routes. Its paths, method, status and summary are the handler's own.

    handler   Litestar's
    asker     who may ask without a key; None: everybody, for what changes nothing
    gives     media type -> type of the answer; of a stream: types of what its events hold
    takes     type that the body is read as; None: the body is not read
    needs     fields of the body without which there is no answer
    examples  name -> body; every one of them is answered
    refuses   what the route raises beside what is wrong with any body
    also      status -> type of another answer that is no error
    path      the shown path, where the handler's own cannot tell it
    params    name -> what a part of the path is: a text, or a type with a description
    queries   name -> what may stand behind the path, likewise
    named     events of its streams have names, and no `[DONE]` is the last
    done      `[DONE]` is the last event where they have no names
    pages     path -> what a browser is refused there, which else gets a page instead
    notes     more about it, in one or two sentences
    """

    handler: Any
    asker: Asker | None = None
    gives: Mapping[str, Any]
    takes: Any = None
    needs: tuple[str, ...] = ()
    examples: Mapping[str, Any] = {}
    refuses: tuple[Exception, ...] = ()
    also: Mapping[int, Any] = {}
    path: str | None = None
    params: Mapping[str, Any] = {}
    queries: Mapping[str, Any] = {}
    named: bool = False
    done: bool = True
    pages: Mapping[str, tuple[Exception, ...]] = {}
    notes: str = ""

    def __post_init__(self) -> None:
        changes = not self.handler.http_methods <= {"GET", "HEAD", "OPTIONS"}
        assert changes == (self.asker is not None), f"who may ask for {self.handler.paths}?"

    @property
    def errors(self) -> tuple[Exception, ...]:
        """All that the route raises."""
        foreign = () if self.asker is None else (FOREIGN[self.asker],)
        return (*(() if self.takes is None else BODY), *foreign, *self.refuses)

    def shown(self, path: str) -> str:
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


KEY = (
    NotAuthenticatedError("The worker has a key, and none came.", code="MISSING_API_KEY"),
    NotAuthenticatedError("The key is wrong."),
)
BODY = (
    RequestError("The body is no JSON object, or a field is wrong."),
    SlowBodyError(f"The body did not arrive in {limits.RECEIVE.most} s."),
    TooLargeError(
        f"The body has more than {limits.BODY.most} MiB, or more than {limits.PARTS.most} lists, "
        "objects and fields."
    ),
    CodedBodyError("The body is compressed."),
    QueueFullError("Too many large bodies are on their way."),
)
FOREIGN = {asker: ForbiddenError(f"Without a key: {asker.value} may ask.") for asker in Asker}
TOKENIZED = (
    RequestError(
        f"The tokeniser would take longer than {limits.TOKENIZING.most} ms for the text.",
        code=limits.TOKENIZING.code,
    ),
)
PROMPT = (ContextLengthError(5000, 4096), *TOKENIZED)
CHAT = (RequestError("The model's file has no chat template.", code="no_chat_template"),)
NO_VECTORS = (RequestError("The model makes no vectors.", code="no_vectors"),)
NO_SCORES = (RequestError("The model makes no scores.", code="no_scores"),)
QUEUE = (
    QueueFullError("As many requests run and wait as may."),
    UnavailableError("The worker stopped before the answer was whole.", code="draining"),
)
ENGINE = (
    DecodeError("llama.cpp failed to compute the tokens."),
    WorkerError("The engine failed; a new worker is needed.", code="ENGINE_FAILED"),
)
FORMED = (QueueFullError("Too many constraints that take long wait already."),)
CANCELLED = (CancelledError("The request was cancelled."),)
GENERATION = QUEUE + FORMED + CANCELLED + ENGINE
_STATES = {
    State.LOADING: UnavailableError("The model is being facts.", code="loading"),
    State.DRAINING: UnavailableError("The worker is about to leave.", code="draining"),
    State.FAILED: UnavailableError("The worker failed and leaves.", code="failed"),
}
_HOST = ForeignHostError("The header Host has a name that this worker does not know.")
_CROWD = UnavailableError("There are too many connections.", code=limits.CONNECTIONS.code)
BROKEN = RuntimeError("a mistake in the worker")


def before(path: str) -> tuple[WorkerError, ...]:
    """What the gate refuses before a route is asked."""
    key = () if path in paths.HEALTH else (*KEY, _CROWD)
    states = (error for state, error in _STATES.items() if not paths.passes(path, state))
    return (*key, _HOST, *states)
