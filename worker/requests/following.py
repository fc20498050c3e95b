"""What the engine has accepted, told to the record of the request at hand."""

from __future__ import annotations

from collections.abc import Sequence

from worker.engine.request import Request
from worker.engine.stream import Stream
from worker.engine.thread import EngineThread
from worker.requests.record import current
from worker.requests.work import RequestWork


def follow(stream: Stream, requests: Sequence[Request], copies: int, engine: EngineThread) -> None:
    """Let the record of the request at hand know what the engine has accepted for it."""
    record = current()
    if record is not None:
        record.follow(RequestWork(stream, requests, copies, engine))
