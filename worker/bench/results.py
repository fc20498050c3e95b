"""The report, as it is written to JSON and read back."""

from __future__ import annotations

import msgspec

from worker.bench.choices import Choices
from worker.bench.corpus import Corpus
from worker.bench.fingerprint import Build, Machine
from worker.bench.greedy import Greedy
from worker.bench.loading import Loading
from worker.bench.memory import Buffers
from worker.bench.plan import Effort, Sizes
from worker.bench.quality import Quality
from worker.bench.speed import Rate, Requests
from worker.bench.statistics import Figure

FORMAT = 1


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens a second, and what they say about the machine.

    prefill_tokens_per_s, decode_tokens_per_s  means of the bare loop, one stream, empty context
    served_tokens_per_s  of one stream over HTTP; None where the server was not measured
    rates, bare_requests, http_requests        everything behind them, raw samples included
    threads, threads_batch   of the bare loop, for one row and for several
    read_per_token   bytes of weights that a decoded token reads
    gb_per_s         10⁹ bytes of weights a second while decoding
    bandwidth_share  of what numpy reads with all threads; None where it would mean nothing
    bandwidth_note   why, or what to know about it
    """

    prefill_tokens_per_s: float
    prefill_error: float
    decode_tokens_per_s: float
    decode_error: float
    served_tokens_per_s: float | None
    served_error: float | None
    rates: tuple[Rate, ...]
    bare_requests: tuple[Requests, ...]
    http_requests: tuple[Requests, ...]
    threads: int
    threads_batch: int
    read_per_token: int
    gb_per_s: float
    bandwidth_share: float | None
    bandwidth_note: str | None

    def decode(self) -> Figure:
        """The repetitions that levels are compared by: over HTTP where measured."""
        for request in self.http_requests:
            if request.streams == 1:
                return request.per_s
        return next(r.per_s for r in self.rates if (r.kind, r.streams) == ("decode", 1))


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes; of the level's own processes, from the kernel.

    peak_rss, pss          of the bare loop: high-water mark, and proportional share at its end
    server_peak_rss, server_pss  of the server
    device_bytes           buffers outside of the host's memory
    context, streams       what both were started with
    planned_bytes          what `worker plan` says for that
    max_context            tokens of the longest context that fits here, one sequence
    """

    peak_rss: int | None
    pss: int | None
    server_peak_rss: int | None
    server_pss: int | None
    device_bytes: int
    buffers: Buffers
    kv_bytes_per_token: int
    context: int
    streams: int
    planned_bytes: int
    max_context: int
    trained_context: int


class LevelQuality(Quality, frozen=True, kw_only=True):
    """Distances from the reference; see `quality.py`."""

    choices: Choices
    greedy: Greedy


class LevelReport(msgspec.Struct, frozen=True, kw_only=True):
    """One level.

    file_type, encoding  as the metadata says, and as the mix of tensors bears it out
    mix       encoding -> share of the weights
    errors    stage -> why there is no result of it
    cached    stages whose result is of an earlier run
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
    load: Loading | None
    speed: Speed | None
    memory: Memory | None
    quality: LevelQuality | None
    errors: dict[str, str]
    cached: tuple[str, ...]


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A level before the verdict: `passes` is None where the errors leave it open."""

    quant: str
    passes: bool | None
    why: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """b beside a, where a is the next larger one. Speed as a share of a's, KLD in nats.

    Margins are halves of 95 % intervals; a difference that is not real is none.
    """

    a: str
    b: str
    size: float
    speed: float | None
    speed_margin: float | None
    speed_is_real: bool
    kld: float | None
    kld_margin: float | None
    kld_is_real: bool


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Which level to take here, by which rule, and how sure that is.

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


class NoiseFloor(msgspec.Struct, frozen=True, kw_only=True):
    """The reference against itself, computed with another number of threads and other batches."""

    threads: int
    batch_rows: int
    other_threads: int
    other_batch_rows: int
    quality: LevelQuality


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run found. Levels are ordered by size, the largest first.

    reference_rows  how the reference's distributions were kept: [likeliest, drawn of the others]
    """

    format: int
    created: str
    model: str
    reference: str
    effort: Effort
    streams: int
    max_kld: float
    levels: tuple[LevelReport, ...]
    noise_floor: NoiseFloor | None
    verdict: Verdict
    corpus: Corpus | None
    corpus_tokens: int | None
    questions: str | None
    reference_rows: tuple[int, int] | None
    sizes: Sizes
    seed: int
    machine: Machine
    build: Build
    notes: tuple[str, ...]
