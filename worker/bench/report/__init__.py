"""The report: the sections of each level, the verdict over the levels, how all was measured.

`Report` is what report.json holds. Its methods derive; they never convert one shape into another.
"""

from __future__ import annotations

import msgspec

from worker.bench.figures import Difference, Figure, figure, latency
from worker.bench.plan import Corpus
from worker.bench.sections import (
    BareSpeed,
    FitChoice,
    HttpSpeed,
    LoadTimes,
    Machine,
    Quality,
    Requests,
    TokenCost,
)
from worker.bench.sizes import Effort, Sizes

FORMAT = 2


class LevelReport(msgspec.Struct, frozen=True, kw_only=True):
    """One level. The fields from `load` on are filled stage by stage; None: not measured.

    file_type  encoding that the file's metadata names
    encoding   encoding that its tensors bear out
    mix        encoding -> share of the weights
    adapter    sha256 of the adapter that it is computed with; None: there is none
    fit        how its mix was chosen; None: it was not
    errors     stage -> why it has no result
    cached     stages whose result comes from an earlier run
    """

    quant: str
    is_reference: bool
    file: str
    sha256: str
    size_bytes: int
    n_params: int
    bpw: float
    bpw_without_embeddings: float
    file_type: str | None
    encoding: str
    mix: dict[str, float]
    adapter: str | None = None
    fit: FitChoice | None = None
    load: LoadTimes | None = None
    speed: BareSpeed | None = None
    serve: HttpSpeed | None = None
    serve_again: HttpSpeed | None = None
    quality: Quality | None = None
    errors: dict[str, str] = {}
    cached: tuple[str, ...] = ()

    def rate(self, kind: str, streams: int, depth: int) -> Figure | None:
        for rate in self.speed.rates if self.speed else ():
            if (rate.kind, rate.streams, rate.depth) == (kind, streams, depth):
                return rate.per_s
        return None

    def http(self) -> tuple[Requests, ...]:
        """The requests over HTTP, both passes in one; empty where nothing was served."""
        first = self.serve.requests if self.serve else ()
        if self.serve_again is None:
            return first
        return tuple(map(_merge, first, self.serve_again.requests))

    def writing_speed(self) -> Figure:
        """Speed of one stream, which levels are compared by: over HTTP where it was measured.

        The level must have its `speed`.
        """
        for request in self.http():
            if request.streams == 1:
                return request.per_s
        bare = self.rate("decode", 1, 0)
        assert bare is not None
        return bare


def _merge(a: Requests, b: Requests) -> Requests:
    """Two passes of the same requests in one."""

    def seconds(name: str) -> tuple[float, ...]:
        return tuple(
            value for part in (a, b) if (found := getattr(part, name)) for value in found.values
        )

    return msgspec.structs.replace(
        a,
        ttft=latency(seconds("ttft")),
        itl=latency(seconds("itl")),
        per_s=figure(a.per_s.values + b.per_s.values),
        passes=a.passes + b.passes,
    )


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A level before the verdict; `passes` is None where the errors leave it open."""

    quant: str
    passes: bool | None
    why: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Level b beside a, the next larger one: speed as a share of a's, KLD in nats."""

    a: str
    b: str
    size: float
    speed: Difference | None
    kld: Difference | None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Which level to take on this machine, by which rule, and how sure that is.

    confidence   sure, likely, toss-up or none
    speed_noise  standard deviation of a pass over HTTP, as a share of its speed; None: one pass
    """

    recommended: str | None
    confidence: str
    rule: str
    reasons: tuple[str, ...]
    doubts: tuple[str, ...]
    pareto: tuple[str, ...]
    speed_noise: float | None
    judgements: tuple[Judgement, ...]
    comparisons: tuple[Comparison, ...]


class BenchReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run found. Levels are ordered by size, the largest first.

    time_s       that the run was meant to take; 0: an older report does not say
    noise_floor  the reference against itself, with other threads and batches
    token_cost   by which `sizes` were settled
    questions    the set of multiple-choice questions, or the file that they were taken from
    """

    format: int
    created: str
    model: str
    reference: str
    effort: Effort
    streams: int
    max_kld: float
    levels: tuple[LevelReport, ...]
    noise_floor: Quality | None
    verdict: Verdict
    corpus: Corpus | None
    questions: str | None
    token_cost: TokenCost
    sizes: Sizes
    seed: int
    machine: Machine
    notes: tuple[str, ...]
    time_s: float = 0.0

    def bandwidth(self, level: LevelReport) -> tuple[float, float | None, str | None] | None:
        """10⁹ bytes of weights that a level reads a second while it writes; their share of what
        this machine reads; or, where a share means nothing, why. None: speed was not measured.
        """
        decode = level.rate("decode", 1, 0)
        if level.speed is None or decode is None:
            return None
        per_s, note = level.speed.read_per_token * decode.mean, None
        if level.speed.buffers.device_bytes:
            note = "layers are on a device, whose memory was not measured"
        elif level.speed.read_per_token < 2 * self.machine.bandwidth.cache_bytes:
            note = "the weights fit into the processor's caches, mostly or wholly"
        share = None if note else per_s / self.machine.bandwidth.per_s.mean
        return per_s / 1e9, share, note
