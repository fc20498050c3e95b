"""Errors as routes raise them, each with the sentence that says when. The code that answers them
makes their status, shape and headers."""

from __future__ import annotations

from worker.errors import (
    CancelledError,
    DecodeError,
    NotAuthenticatedError,
    QueueFullError,
    RequestError,
    TooLargeError,
    UnavailableError,
    WorkerError,
)
from worker.lifecycle.state import State
from worker.limits import BODY, PARTS, RECEIVE
from worker.service.body import SlowBodyError
from worker.service.front import paths

KEY = (
    NotAuthenticatedError("The worker has a key, and none came.", code="MISSING_API_KEY"),
    NotAuthenticatedError("The key is wrong."),
)
BODY = (
    RequestError("The body is no JSON object, or a field is wrong."),
    SlowBodyError(f"The body did not arrive in {RECEIVE.most} s."),
    TooLargeError(
        f"The body has more than {BODY.most} MiB, or more than {PARTS.most} lists, objects and "
        "fields."
    ),
)
PROMPT = (
    RequestError("The prompt does not fit into the context.", code="context_length_exceeded"),
)
CHAT = (RequestError("The model's file has no chat template.", code="no_chat_template"),)
QUEUE = (
    QueueFullError("As many requests run and wait as may."),
    UnavailableError("The worker stopped before the answer was whole.", code="draining"),
)
ENGINE = (
    DecodeError("llama.cpp failed to compute the tokens."),
    WorkerError("The engine failed; a new worker is needed.", code="ENGINE_FAILED"),
)
FORMED = (QueueFullError("Too many constraints that take long wait already."),)
CANCELLED = (CancelledError("The request was cancelled.", code="cancelled"),)
GENERATION = QUEUE + FORMED + CANCELLED + ENGINE
_STATES = {
    State.LOADING: UnavailableError("The model is being loaded.", code="loading"),
    State.DRAINING: UnavailableError("The worker is about to leave.", code="draining"),
    State.FAILED: UnavailableError("The worker failed and leaves.", code="failed"),
}
BROKEN = RuntimeError("a mistake in the worker")


def before(path: str) -> tuple[WorkerError, ...]:
    """What the gate refuses before a route is asked."""
    key = () if path in paths.HEALTH else KEY
    return key + tuple(error for state, error in _STATES.items() if not paths.passes(path, state))
