"""GET /v1/requests as it goes over the wire."""

from __future__ import annotations

from typing import Literal

import msgspec

from worker.log import LogLine

LiveState = Literal["waiting", "reading", "writing"]
Outcome = Literal["stop", "length", "cancelled", "left", "error", "refused"]
# Unix seconds; prompt tokens computed a second; tokens sampled a second.
Speed = tuple[int, float, float]


class LiveMemory(msgspec.Struct, frozen=True):
    """What the process and its GPUs hold now, measured; what was planned before loading."""

    resident_bytes: int
    planned_bytes: int


class LiveCells(msgspec.Struct, frozen=True):
    """Cells of the KV cache: of running sequences, of ended ones alone, of nobody."""

    total: int
    live: int
    cached: int
    free: int


class LiveCached(msgspec.Struct, frozen=True):
    """States of ended conversations outside of the KV cache."""

    memory_bytes: int
    memory_limit_bytes: int
    disk_bytes: int
    disk_limit_bytes: int


class LiveTotals(msgspec.Struct, frozen=True):
    """Sums since the start; they only grow.

    prompt_tokens     that were computed, also of requests that run
    cached_tokens     prompt tokens of ended sequences that the cache gave
    generated_tokens  also of requests that run
    requests, errors  that ended; those of them that ended in an error of ours
    """

    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    requests: int
    errors: int


class LiveWorker(msgspec.Struct, frozen=True):
    """The worker at one moment.

    slots, running, waiting  sequences: at most, now and queued
    is_sleeping              the next request that generates loads the model first
    """

    state: Literal["ready", "draining", "failed"]
    model: str
    uptime_s: float
    slots: int
    running: int
    waiting: int
    memory: LiveMemory
    cells: LiveCells
    kept: LiveCached
    totals: LiveTotals
    is_sleeping: bool = False


class LiveRequest(msgspec.Struct, frozen=True):
    """A request that generates. Tokens are those of all its sequences; a prompt counts once.

    Counts are 0 while it is made ready, as by a schema that is compiled: it waits then.

    state             reading: no token yet, of any sequence
    age_s, wait_s     since it came; in the queue so far
    read_tokens       of the prompts, that are in the KV cache; cached_tokens were found
    max_tokens        that it may generate
    tokens_per_second over the last seconds; None until there are two tokens
    """

    id: str
    correlation_id: str | None
    route: str
    model: str
    state: LiveState = "waiting"
    sequences: int = 0
    stream: bool = False
    age_s: float = 0.0
    wait_s: float = 0.0
    prompt_tokens: int = 0
    read_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    max_tokens: int = 0
    tokens_per_second: float | None = None


class EndedRequest(msgspec.Struct, frozen=True):
    """A request that has ended, as it also stands in the log. Counts are 0 for a refused one.

    status            of the answer; None: its client left before
    outcome           stop, length; cancelled by request; left by its client; error; refused before
                      it generated
    code              of the error, where there was one
    ended_at          Unix seconds
    wait_s            in the queue
    first_token_s     from its coming to its first token; None: there was none
    tokens_per_second from the first token to the last
    cache_reason      why no more of the prompt came from the cache; None: it generated no text
    """

    id: str
    correlation_id: str | None
    route: str
    model: str
    status: int | None
    outcome: Outcome
    code: str | None
    ended_at: float
    duration_s: float
    wait_s: float
    first_token_s: float | None
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    tokens_per_second: float | None
    cache_reason: str | None = None


class LiveReply(msgspec.Struct, frozen=True, kw_only=True):
    """The whole view.

    at      Unix seconds
    speeds  one point each 5 s, oldest first
    data    what generates, oldest first
    recent  what ended last, newest first
    log     the last lines, oldest first: time in UTC, level, part, event, the other fields
    """

    object: str = "list"
    at: float
    worker: LiveWorker
    speeds: list[Speed]
    data: list[LiveRequest]
    recent: list[EndedRequest]
    log: list[LogLine]


class AccountUsage(msgspec.Struct):
    """What the requests of one key used. Sums since the start, with --state-dir since the first
    one; they only grow. Requests that compute nothing do not count.

    requests       that ended, refused ones among them
    cached_tokens  of the prompts' tokens, that were found
    """

    requests: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0


class UsageReply(msgspec.Struct, frozen=True):
    """GET /v1/usage: by the name of a key."""

    data: dict[str, AccountUsage]
    object: str = "usage"


class RequestCancelled(msgspec.Struct, frozen=True):
    """POST /v1/requests/{id}/cancel. requests: how many had this id; all were cancelled."""

    id: str
    cancelled: bool
    requests: int
