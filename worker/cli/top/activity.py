"""What a worker says it is doing: the JSON of GET /v1/requests, as far as it is shown.

What is missing there is 0 or empty here, so that workers of other versions can be watched too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from worker.cli.top.address import WatchError


class WatchedMemory(msgspec.Struct):
    """Bytes."""

    resident_bytes: int | None = None
    planned_bytes: int | None = None


class WatchedCells(msgspec.Struct):
    """Cells of the KV cache. cached: they hold what ended requests left."""

    total: int = 0
    live: int = 0
    cached: int = 0
    free: int = 0


class WatchedKept(msgspec.Struct):
    """Bytes of states that wait outside of the KV cache."""

    memory_bytes: int = 0
    memory_limit_bytes: int | None = None
    disk_bytes: int = 0
    disk_limit_bytes: int | None = None


class WatchedTotals(msgspec.Struct):
    """Since the worker's start."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    requests: int = 0
    errors: int = 0


class WatchedWorker(msgspec.Struct):
    """The worker as a whole."""

    state: str = ""
    model: str | None = None
    uptime_s: float = 0.0
    slots: int = 0
    running: int = 0
    waiting: int = 0
    memory: WatchedMemory = msgspec.field(default_factory=WatchedMemory)
    cells: WatchedCells = msgspec.field(default_factory=WatchedCells)
    kept: WatchedKept = msgspec.field(default_factory=WatchedKept)
    totals: WatchedTotals = msgspec.field(default_factory=WatchedTotals)


class WatchedRequest(msgspec.Struct):
    """A request that waits, reads its prompt or writes."""

    id: str = ""
    route: str = ""
    state: str = ""
    sequences: int = 1
    age_s: float = 0.0
    wait_s: float = 0.0
    prompt_tokens: int = 0
    read_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    max_tokens: int | None = None
    tokens_per_second: float | None = None


class WatchedEnd(msgspec.Struct):
    """A request that has ended."""

    id: str = ""
    route: str = ""
    status: int | None = None
    outcome: str = ""
    duration_s: float | None = None
    first_token_s: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    tokens_per_second: float | None = None


class Activity(msgspec.Struct):
    """All of it.

    speeds  up to 120 points: unix seconds, prompt tokens read and tokens written in a second
    log     lines in words: time, level, part, event, rest
    """

    worker: WatchedWorker
    speeds: list[tuple[float, float, float]] = []
    data: list[WatchedRequest] = []
    recent: list[WatchedEnd] = []
    log: list[tuple[str | None, ...]] = []


def activity_of(said: Any) -> Activity:
    """The decoded JSON as far as it is shown. Raises WatchError for something else."""
    try:
        return msgspec.convert(said, Activity)
    except msgspec.ValidationError as error:
        raise WatchError(
            f"The worker says what is not understood here: {error}.",
            hint="Watch it with `worker top` of its own version.", lasting=True,
        ) from None  # fmt: skip
