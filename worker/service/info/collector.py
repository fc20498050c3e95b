"""Our counters as Prometheus text, under our names and those that routers scrape."""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from worker import machine
from worker.engine.stats import BORDERS, Histogram
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker

# our name -> the names that other systems know it by
ALIASES: dict[str, tuple[str, ...]] = {
    "worker_requests_running": ("llamacpp:requests_processing", "vllm:num_requests_running"),
    "worker_requests_waiting": ("llamacpp:requests_deferred", "vllm:num_requests_waiting"),
    "worker_prompt_tokens": ("llamacpp:prompt_tokens", "vllm:prompt_tokens"),
    "worker_tokens_generated": ("llamacpp:tokens_predicted", "vllm:generation_tokens"),
    "worker_kv_cells_live_ratio": (
        "llamacpp:kv_cache_usage_ratio", "vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc",
    ),
    "worker_prefix_queries": ("vllm:gpu_prefix_cache_queries", "vllm:prefix_cache_queries"),
    "worker_prefix_hits": ("vllm:gpu_prefix_cache_hits", "vllm:prefix_cache_hits"),
    "worker_preemptions": ("vllm:num_preemptions",),
    "worker_draft_tokens": ("vllm:spec_decode_num_draft_tokens",),
    "worker_draft_tokens_accepted": ("vllm:spec_decode_num_accepted_tokens",),
    "worker_queue_seconds": ("vllm:request_queue_time_seconds",),
    "worker_first_token_seconds": ("vllm:time_to_first_token_seconds",),
    "worker_inter_token_seconds": (
        "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds",
    ),
    "worker_request_seconds": ("vllm:e2e_request_latency_seconds",),
}  # fmt: skip


class WorkerCollector(Collector):
    """Reads the counters when asked; the engine's thread is never waited for."""

    def __init__(self, worker: Worker, loaded: Loaded) -> None:
        self._worker = worker
        self._loaded = loaded

    def collect(self) -> Iterable[Metric]:
        """All families, each under all its names."""
        worker, loaded = self._worker, self._loaded
        engine = loaded.engine.snapshot
        stats = engine.stats
        labels = {"model_name": loaded.model_id}
        yield from _gauge(
            "worker_requests_running", "Sequences that run", engine.num_running, labels
        )
        yield from _gauge(
            "worker_requests_waiting", "Sequences that wait", engine.num_waiting, labels
        )
        live = engine.live_cells
        yield from _gauge("worker_kv_cells_live", "KV cells of running sequences", live, labels)
        yield from _gauge(
            "worker_kv_cells_cached", "KV cells kept for their prefix", engine.cached_cells, labels
        )
        ratio = live / engine.num_cells
        yield from _gauge("worker_kv_cells_live_ratio", "Share of KV cells in use", ratio, labels)
        memory = machine.resident_bytes()
        yield from _gauge("worker_memory_bytes", "Resident memory", memory, labels)
        vram = loaded.vram_bytes
        yield from _gauge("worker_vram_bytes", "GPU memory that the model takes", vram, labels)
        uptime = time.monotonic() - worker.started_at
        yield from _gauge("worker_uptime_seconds", "Since the process began", uptime, labels)
        kept = engine.kept
        for name, text, value in (
            ("worker_cache_bytes", "Host memory that kept states take", kept.memory_bytes),
            ("worker_cache_limit_bytes", "Host memory that they may take", kept.memory_limit),
            ("worker_cache_tokens", "Tokens whose state is kept in host memory", kept.kept_tokens),
            ("worker_cache_disk_bytes", "Disk that kept states take", kept.disk_bytes),
            ("worker_cache_disk_limit_bytes", "Disk that they may take", kept.disk_limit),
        ):
            yield from _gauge(name, text, value, labels)
        for name, text, value in (
            ("worker_steps", "Engine steps", engine.num_steps),
            ("worker_prompt_tokens", "Prompt tokens of ended requests", stats.prompt_tokens),
            ("worker_tokens_generated", "Sampled tokens of ended requests", stats.sampled_tokens),
            ("worker_prefix_queries", "Prompt tokens looked up", stats.prompt_tokens),
            ("worker_prefix_hits", "Prompt tokens that were not computed", stats.cached_tokens),
            ("worker_cache_restored_tokens", "Tokens brought back", kept.restored_tokens),
            ("worker_cache_evicted_tokens", "Tokens pushed out of memory", kept.evicted_tokens),
            ("worker_cache_disk_written_bytes", "Kept states written", kept.disk_written),
            ("worker_cache_disk_read_bytes", "Kept states read again", kept.disk_read),
            ("worker_cache_disk_errors", "Files damaged, unreadable, unwritten", kept.disk_errors),
            ("worker_preemptions", "Sequences put back for want of cells", engine.num_preempted),
            ("worker_draft_tokens", "Guessed tokens computed", stats.drafted_tokens),
            ("worker_draft_tokens_accepted", "Guessed tokens right", stats.accepted_tokens),
        ):
            yield from _counter(name, text, {"": value}, labels)
        yield from _counter("worker_requests", "Ended requests", stats.finished, labels)
        for name, text, histogram in (
            ("worker_queue_seconds", "From submission to admission", stats.queue_time),
            ("worker_first_token_seconds", "From submission to first token", stats.first_token),
            ("worker_inter_token_seconds", "Mean time between tokens", stats.inter_token),
            ("worker_request_seconds", "From submission to the end", stats.whole_request),
        ):
            yield from _histogram(name, text, histogram, labels)
        # The original worker's name and unit for the last one.
        yield from _histogram(
            "worker_inference_duration_ms",
            "From submission to the end, in milliseconds",
            stats.whole_request,
            labels,
            unit=1e-3,
        )


def _names(name: str) -> tuple[str, ...]:
    return (name, *ALIASES.get(name, ()))


def _gauge(name: str, text: str, value: float, labels: dict[str, str]) -> Iterable[Metric]:
    for alias in _names(name):
        family = GaugeMetricFamily(alias, text, labels=list(labels))
        family.add_metric(list(labels.values()), value)
        yield family


def _counter(
    name: str, text: str, values: dict[str, int], labels: dict[str, str]
) -> Iterable[Metric]:
    """`values` by outcome, or a single one under ""."""
    outcome = [] if list(values) == [""] else ["outcome"]
    for alias in _names(name):
        family = CounterMetricFamily(alias, text, labels=[*labels, *outcome])
        for key, value in values.items():
            family.add_metric([*labels.values(), *([key] if outcome else [])], value)
        yield family


def _histogram(
    name: str, text: str, histogram: Histogram, labels: dict[str, str], *, unit: float = 1.0
) -> Iterable[Metric]:
    """`unit` in seconds."""
    counts = histogram.counts
    buckets = [
        (str(round(border / unit, 6)), float(sum(counts[: index + 1])))
        for index, border in enumerate(BORDERS)
    ]
    buckets.append(("+Inf", float(sum(counts))))
    for alias in _names(name):
        family = HistogramMetricFamily(alias, text, labels=list(labels))
        family.add_metric(list(labels.values()), buckets, histogram.total / unit)
        yield family


def metrics_text(worker: Worker, loaded: Loaded) -> bytes:
    """Counters, gauges and histograms."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(WorkerCollector(worker, loaded))
    return generate_latest(registry)
