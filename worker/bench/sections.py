"""The sections of a report.

A child process answers with one of these structs, and the struct stands in report.json as it is.
Nothing here computes; `measure/` and `quality/` fill the structs, `report/` shows them.
"""

from __future__ import annotations

import msgspec

from worker.bench.figures import Figure, Latency


class Bandwidth(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes a second that `threads` threads read together from arrays of `nbytes` in all.

    cache_bytes  size of the processor's last-level cache
    """

    threads: int
    nbytes: int
    per_s: Figure
    cache_bytes: int


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    worker: str
    python: str
    bindings: str
    backends: tuple[str, ...]
    system_info: str


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures were taken on; nothing here names the machine itself."""

    system: str
    cpu: str
    cpus: int
    memory_bytes: int
    bandwidth: Bandwidth
    devices: tuple[str, ...]
    versions: Versions


class TokenCost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that the reference takes for one token: read from a prompt, and written.

    score_s      to compare a token's row with the reference's
    text_tokens  of the text that quality is measured on; an estimate of a long one
    """

    read_s: float
    write_s: float
    score_s: float = 0.0
    text_tokens: int = 0


class LoadTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds until a model is loaded and warmed up.

    cold     its files were dropped from the system's cache first; None where that is not possible
    dropped  share of the files that was gone from the cache before a cold load, in the worst case
    warm     its files were in the cache
    """

    cold: Figure | None
    dropped: float | None
    warm: Figure


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens a second of all streams together: `tokens` in each, after `depth` tokens of context.

    kind: `prefill` reads a prompt, `decode` writes token by token
    """

    kind: str
    streams: int
    depth: int
    tokens: int
    per_s: Figure


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """Whole requests of `streams` side by side: `prompt` tokens read, `tokens` written.

    ttft     from the request to its first token, seconds
    itl      between tokens of a stream, seconds
    per_s    tokens a second of all streams: the sum of each one's, from its first to its last
    passes   mean of `per_s` in each process that was measured
    """

    streams: int
    prompt: int
    tokens: int
    ttft: Latency | None
    itl: Latency | None
    per_s: Figure
    passes: tuple[float, ...]


class ProcessMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a process, as the kernel counts them.

    peak_rss  the most resident memory so far (VmHWM)
    rss, pss  resident memory now; in `pss` a page that is shared counts by its share
    """

    peak_rss: int
    rss: int
    pss: int


class Buffers(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that llama.cpp allocated, by buffer; `device_bytes`: those outside of the host."""

    weights: dict[str, int]
    kv: dict[str, int]
    compute: dict[str, int]
    device_bytes: int


class MemoryNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that the model needs on this machine, by the worker's own plan.

    planned_bytes    a whole worker with `context` cells for `streams` sequences
    max_context      tokens of the longest context that fits now, at most `trained_context`
    trained_context  tokens that the model was trained on; 0 where the file does not say
    """

    context: int
    streams: int
    planned_bytes: int
    kv_bytes_per_token: int
    max_context: int
    trained_context: int


class VectorSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """How fast vectors of `texts` texts with `tokens` tokens in all are made."""

    texts: int
    tokens: int
    texts_per_s: Figure
    tokens_per_s: Figure
    memory: ProcessMemory | None


class LoopSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """All tests of the bare loop: decode and sample, without engine, service or clients."""

    rates: tuple[Rate, ...]
    requests: tuple[Requests, ...]


class BareSpeed(LoopSpeed, frozen=True, kw_only=True):
    """The bare loop's speed, and what its process took.

    threads, threads_batch  as chosen, for one row and for several
    read_per_token          bytes of weights that a decoded token reads
    memory                  of the loop's process at its end; None without /proc
    """

    threads: int
    threads_batch: int
    read_per_token: int
    memory: ProcessMemory | None
    buffers: Buffers
    needs: MemoryNeeds


class HttpSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """One pass over HTTP: requests at 1 and at N streams, and the server's memory after them."""

    requests: tuple[Requests, ...]
    memory: ProcessMemory | None


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """Multiple choice: shares of `questions`, with binomial errors.

    flips    the answer turned from right to wrong or from wrong to right
    changed  the answer is another one, also from one wrong answer to another
    """

    questions: int
    accuracy: float
    accuracy_error: float
    accuracy_reference: float
    flips: float
    flips_error: float
    changed: float


class Greedy(msgspec.Struct, frozen=True, kw_only=True):
    """Greedy continuations of `prompts` prompts, `tokens` tokens each.

    first_difference         of each prompt the index of the first other token; None: no other
    median_first_difference  a continuation without one counts with its full length
    """

    prompts: int
    tokens: int
    identical: int
    first_difference: tuple[int | None, ...]
    median_first_difference: float


class FitChoice(msgspec.Struct, frozen=True, kw_only=True):
    """How a fit was chosen.

    text      that it was chosen by, of which the rest is scored
    imatrix   name of the importance matrix that was given; None: it was computed on that text
    estimate  nats
    probes    groups of tensors that were measured, for all fits together
    seconds   that this one took, the first one with the probes
    """

    text: str
    imatrix: str | None
    estimate: float
    probes: int
    seconds: float


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """A level's distributions beside the reference's; KLD in nats, Δp in probability (0 to 1).

    tokens, windows, window  scored tokens, windows, and tokens of a window
    kld_mean_error_windows   null: the text has one window
    kld_sampling_error       standard error that comes from rows which are kept in part
    window_kld, window_nll   means of each window, [windows], to compare levels pairwise
    """

    tokens: int
    windows: int
    window: int
    ppl: float
    ppl_error: float
    ppl_reference: float
    ln_ppl_ratio: float
    ln_ppl_ratio_error: float
    kld_mean: float
    kld_mean_error: float
    kld_mean_error_windows: float | None
    kld_sampling_error: float
    kld_median: float
    kld_p90: float
    kld_p95: float
    kld_p99: float
    kld_p999: float
    kld_max: float
    same_top: float
    same_top_error: float
    dp_mean: float
    dp_mean_error: float
    dp_rms: float
    dp_rms_error: float
    window_kld: tuple[float, ...]
    window_nll: tuple[float, ...]


class Quality(Divergence, frozen=True, kw_only=True):
    """Everything that quality is, and how it was computed.

    text_tokens          tokens of the whole text
    reference_rows       entries that the reference's rows keep: [likeliest, drawn of the others]
    threads, batch_rows  of the computation; the noise floor has others than the levels
    """

    choices: Choices
    greedy: Greedy
    text_tokens: int
    reference_rows: tuple[int, int]
    threads: int
    batch_rows: int
