"""Our errors in Anthropic's words."""

from __future__ import annotations

import msgspec
import pytest

from tests.api.anthropic import oracle
from worker.api.answer.shapes import anthropic_reply
from worker.errors import (
    DecodeError,
    ForbiddenError,
    NotAuthenticatedError,
    NotFoundError,
    NotSupportedError,
    QueueFullError,
    RequestError,
    UnavailableError,
    WorkerError,
)
from worker.http.replies import reply_of_ours


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RequestError("no"), 400, "invalid_request_error"),
        (NotAuthenticatedError("no"), 401, "authentication_error"),
        (ForbiddenError("no"), 403, "permission_error"),
        (NotFoundError("no"), 404, "not_found_error"),
        (QueueFullError("no"), 429, "rate_limit_error"),
        (DecodeError("no"), 500, "api_error"),
        (NotSupportedError("no"), 501, "api_error"),
        (UnavailableError("no"), 503, "overloaded_error"),
    ],
)
def test_types(error: WorkerError, status: int, kind: str) -> None:
    """Each status has its type, and the official package knows it."""
    found, reply, headers = reply_of_ours(error)
    told = oracle.error(msgspec.json.encode(anthropic_reply(found, reply)))
    assert (found, told.error.type, told.error.message) == (status, kind, "no")
    assert ("retry-after" in headers) == (status in (429, 503))
