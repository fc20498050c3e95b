"""What the worker can tell about itself in numbers, at one moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec

from worker import machine
from worker.engine.stats import EngineSnapshot, Histogram
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.requests.journal import Outcomes


class Reading(msgspec.Struct, frozen=True):
    """A metric under our name, of counters without `_total`.

    value   one number; or numbers by the values of the labels; or a histogram
    labels  what tells the numbers apart
    unit    of a histogram, in its values' own unit
    """

    kind: Literal["gauge", "counter", "histogram"]
    name: str
    help: str
    value: float | Mapping[tuple[str, ...], float] | Histogram
    labels: tuple[str, ...] = ()
    unit: float = 1.0


def readings(
    worker: Worker, loaded: Loaded, engine: EngineSnapshot, outcomes: Outcomes
) -> Iterator[Reading]:
    """All metrics; `engine`: its counters at this moment."""
    yield from _gauges(worker, loaded, engine)
    yield from _counters(engine)
    encoded = 0 if loaded.media is None else loaded.media.num_encoded
    yield Reading("counter", "worker_media_encoded", "Images and audio encoded", encoded)
    text, by_route = "Answers by route and status", outcomes.by_route
    yield Reading("counter", "worker_http_requests", text, by_route, ("route", "status"))
    text, by_code = "Answers that told of an error, by its code", outcomes.errors
    yield Reading("counter", "worker_errors", text, by_code, ("code", "status"))
    text = "Requests by why no more of their prompt came from the cache"
    yield Reading("counter", "worker_cache_reasons", text, outcomes.reasons, ("reason",))
    yield from _usage(outcomes)
    yield from _lines(outcomes)
    yield from _times(engine)


def _lines(outcomes: Outcomes) -> Iterator[Reading]:
    """Of batches, with `--state-dir`."""
    batches = outcomes.batches
    if batches is None:
        return
    alive = {("waiting",): batches.num_waiting, ("running",): batches.num_running}
    text = "Lines of batches that wait, and that are being answered"
    yield Reading("gauge", "worker_batch_lines", text, alive, ("state",))
    ended = {(name,): batches.outcomes[name] for name in ("completed", "failed")}
    text = "Lines of batches that were answered, by outcome"
    yield Reading("counter", "worker_batch_lines_answered", text, ended, ("outcome",))


def _usage(outcomes: Outcomes) -> Iterator[Reading]:
    """By the names of keys, where some have one."""
    for field, name, text in (
        ("requests", "worker_account_requests", "Ended requests, by the name of their key"),
        ("refused", "worker_account_requests_refused", "Refused ones of them"),
        ("prompt_tokens", "worker_account_prompt_tokens", "Prompt tokens of ended requests"),
        ("cached_tokens", "worker_account_cached_tokens", "Those of them that were found"),
        ("generated_tokens", "worker_account_tokens_generated", "Sampled tokens of these requests"),
    ):
        values = {(key,): getattr(used, field) for key, used in outcomes.usage.items()}
        yield Reading("counter", name, text, values, ("account",))


def _gauges(worker: Worker, loaded: Loaded, engine: EngineSnapshot) -> Iterator[Reading]:
    longest = max((s.num_known for s in engine.running), default=0)
    cells = {
        ("live",): engine.live_cells,
        ("cached",): engine.cached_cells,
        ("free",): engine.free_cells,
    }
    text = "KV cells: of running sequences, kept for their prefix, free"
    yield Reading("gauge", "worker_kv_cells", text, cells, ("state",))
    backend, kept = loaded.backend, engine.kept
    threads = {
        ("one",): backend.context.threads,
        ("several",): backend.context.threads_batch,
    }
    text = "Compute threads of a step of one row, and of several"
    yield Reading("gauge", "worker_compute_threads", text, threads, ("rows",))
    for name, text, value in (
        ("worker_attention_fused", "Whether attention is fused now (flash attention); else plain",
         loaded.is_fused),
        ("worker_sleeping", "Whether the model's memory was given back until somebody asks",
         worker.is_sleeping),
        ("worker_kv_unified", "Whether all sequences share one pool of KV cells now",
         backend.unified),
        ("worker_neighbours_busy", "Whether compute threads wait for CPUs that others use",
         backend.spin.is_shared),
        ("worker_kv_cells_live_ratio", "Share of KV cells in use",
         engine.live_cells / engine.num_cells),
        ("worker_requests_running", "Sequences that run", engine.num_running),
        ("worker_requests_waiting", "Sequences that wait", engine.num_waiting),
        ("worker_slots", "Sequences that can run at once", engine.max_running),
        ("worker_longest_sequence_tokens", "Tokens of the longest sequence so far",
         max(longest, engine.stats.longest)),
        ("worker_memory_bytes", "Resident memory", machine.resident_bytes()),
        ("worker_vram_bytes", "GPU memory that the model takes", loaded.vram_bytes),
        ("worker_tasks", "Tasks of the event loop", _num_tasks()),
        ("worker_uptime_seconds", "Since the process began", time.monotonic() - worker.started_at),
        ("worker_cache_bytes", "Host memory that kept states take", kept.memory_bytes),
        ("worker_cache_limit_bytes", "Host memory that they may take", kept.memory_limit),
        ("worker_cache_tokens", "Tokens whose state is kept in host memory", kept.kept_tokens),
        ("worker_cache_disk_bytes", "Disk that kept states take", kept.disk_bytes),
        ("worker_cache_disk_limit_bytes", "Disk that they may take", kept.disk_limit),
    ):  # fmt: skip
        yield Reading("gauge", name, text, value)


def _num_tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # read outside of the event loop
        return 0


def _counters(engine: EngineSnapshot) -> Iterator[Reading]:
    stats, kept = engine.stats, engine.kept
    ended = {(reason,): count for reason, count in stats.finished.items()}
    yield Reading("counter", "worker_requests", "Ended sequences", ended, ("outcome",))
    hits = {
        ("cells",): stats.shared_tokens,
        ("memory",): stats.memory_tokens,
        ("disk",): stats.disk_tokens,
    }
    text = "Prompt tokens that were found, not computed"
    yield Reading("counter", "worker_prefix_hits", text, hits, ("source",))
    seconds = {("prompts",): stats.prompt_s, ("tokens",): stats.token_s}
    text = "Seconds of steps that read prompts, and of steps that only write"
    yield Reading("counter", "worker_step_seconds", text, seconds, ("kind",))
    for name, text, value in (
        ("worker_steps", "Engine steps", engine.num_steps),
        ("worker_step_sequences", "Sequences that ran, counted in each step", stats.num_busy),
        ("worker_prompt_tokens", "Prompt tokens computed or found", stats.prompt_tokens),
        ("worker_prompt_tokens_computed", "Prompt tokens computed", stats.computed_tokens),
        ("worker_tokens_generated", "Sampled tokens", stats.sampled_tokens),
        ("worker_prefix_queries", "Prompt tokens looked up", stats.looked_up_tokens),
        ("worker_cache_restored_tokens", "Tokens brought back", kept.restored_tokens),
        ("worker_cache_evicted_tokens", "Tokens pushed out of memory", kept.evicted_tokens),
        ("worker_cache_disk_written_bytes", "Kept states written", kept.disk_written),
        ("worker_cache_disk_read_bytes", "Kept states read again", kept.disk_read),
        ("worker_cache_disk_errors", "Files damaged, unreadable, unwritten", kept.disk_errors),
        ("worker_preemptions", "Sequences put back, for want of cells or for one that comes first",
         engine.num_preempted),
        ("worker_rearrangements", "Times that the cells were made anew, for another layout",
         stats.num_rearranged),
        ("worker_stalls", "Tokens later than --max-stall-ms after the one before",
         stats.num_stalls),
        ("worker_drafts", "Guesses verified", stats.num_drafts),
        ("worker_draft_tokens", "Draft tokens computed", stats.drafted_tokens),
        ("worker_draft_tokens_accepted", "Draft tokens accepted", stats.accepted_tokens),
        ("worker_texts_embedded", "Texts whose vectors or scores were made", stats.embedded_texts),
        ("worker_tokens_embedded", "Tokens of these", stats.embedded_tokens),
        ("worker_embedding_seconds", "Seconds of the steps that read them", stats.embedding_s),
    ):  # fmt: skip
        yield Reading("counter", name, text, value)


def _times(engine: EngineSnapshot) -> Iterator[Reading]:
    stats = engine.stats
    for name, text, value in (
        ("worker_step_rows", "Rows of a step", stats.step_rows),
        ("worker_queue_seconds", "From submission to admission", stats.queue_time),
        ("worker_first_token_seconds", "From submission to the first token", stats.first_token),
        (
            "worker_inter_token_seconds",
            "From a step with tokens of a sequence to the next one",
            stats.inter_token,
        ),
        ("worker_read_seconds", "From admission to the first token", stats.read_time),
        ("worker_write_seconds", "From the first token to the last", stats.write_time),
        ("worker_request_seconds", "From submission to the last token", stats.whole_request),
        ("worker_request_prompt_tokens", "Prompt tokens of a sequence", stats.prompt_lengths),
        ("worker_request_generated_tokens", "Sampled tokens of a sequence", stats.answer_lengths),
    ):
        yield Reading("histogram", name, text, value)
    # The original worker's name and unit for one of them.
    yield Reading(
        "histogram",
        "worker_inference_duration_ms",
        "From submission to the last token, in milliseconds",
        stats.whole_request,
        unit=1e-3,
    )


class Ratio(msgspec.Struct, frozen=True):
    """What another server calls a quotient of sums of ours.

    parts  dividend and divisor, both since the start
    fresh  it is that of the time since the last scrape
    """

    name: str
    help: str
    parts: Callable[[EngineSnapshot], tuple[float, float]]
    fresh: bool = False


class Window:
    """Quotients since they were asked for last, as llama-server gives them."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def value(self, ratio: Ratio, engine: EngineSnapshot) -> float:
        """The quotient now; 0 where nothing was done."""
        above, below = ratio.parts(engine)
        if ratio.fresh:
            last = self._last.get(ratio.name, (0.0, 0.0))
            self._last[ratio.name] = above, below
            above, below = above - last[0], below - last[1]
        return above / below if below else 0.0
