"""The gate's lists of paths, beside the routes that there are."""

from __future__ import annotations

from worker.api.described import EVENTS, LINES
from worker.api.intake.sampling import SamplingFields
from worker.api.intake.thinking import ChatFields
from worker.api.jobs.schemas import JobRequest
from worker.http.paths import CHATS, WRITING
from worker.service.app import APIS


def paths_that_take(shape: type, *asked: str) -> set[str]:
    """Of routes that stream, read such a body, and whose handlers ask for all of that."""
    found: set[str] = set()
    for route in (route for api in APIS for route in api.routes):
        names = route.handler.fn.__annotations__
        if isinstance(route.takes, type) and issubclass(route.takes, shape):
            streams = not {EVENTS, LINES}.isdisjoint(route.gives)
            found |= route.handler.paths if streams and names.keys() >= {*asked} else set()
    return found


def test_chats() -> None:
    """Each route that streams an answer to a conversation is one of CHATS."""
    assert paths_that_take(ChatFields, "chat") == CHATS


def test_writing() -> None:
    """Each route that streams what it samples is one of WRITING, but for jobs."""
    assert paths_that_take(SamplingFields) - paths_that_take(JobRequest) <= WRITING
    assert CHATS < WRITING
