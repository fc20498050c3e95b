"""The model's memory in vLLM's shapes, and the answer to a shutdown."""

from __future__ import annotations

import msgspec

from worker.errors import UnavailableError
from worker.lifecycle.sleeper import Sleeper
from worker.lifecycle.worker import Worker


class Sleeping(msgspec.Struct):
    """Whether the model's memory was given back."""

    is_sleeping: bool


def sleeper_of(worker: Worker) -> Sleeper:
    """Raises UnavailableError."""
    if worker.sleeper is None:
        raise UnavailableError("Loading model", code="loading")
    return worker.sleeper


class ShutdownReply(msgspec.Struct):
    """`drain_timeout`: seconds that running requests still have, at most."""

    status: str
    drain_timeout: float
