"""Errors as routes raise them, each with the sentence that says when. The code that answers them
makes their status, shape and headers."""

from __future__ import annotations

from worker import limits
from worker.api.common.body import CodedBodyError, SlowBodyError
from worker.errors import (
    CancelledError,
    ContextLengthError,
    DecodeError,
    NotAuthenticatedError,
    QueueFullError,
    RequestError,
    TooLargeError,
    UnavailableError,
    WorkerError,
)
from worker.http import paths
from worker.lifecycle.state import State

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
    State.LOADING: UnavailableError("The model is being loaded.", code="loading"),
    State.DRAINING: UnavailableError("The worker is about to leave.", code="draining"),
    State.FAILED: UnavailableError("The worker failed and leaves.", code="failed"),
}
_CROWD = UnavailableError("There are too many connections.", code=limits.CONNECTIONS.code)
BROKEN = RuntimeError("a mistake in the worker")


def before(path: str) -> tuple[WorkerError, ...]:
    """What the gate refuses before a route is asked."""
    key = () if path in paths.HEALTH else (*KEY, _CROWD)
    return key + tuple(error for state, error in _STATES.items() if not paths.passes(path, state))
