"""Our counters as Prometheus text, under our names and those that routers and dashboards of other
servers scrape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from worker.api.info.readings import Ratio, Reading, Window, readings
from worker.engine.stats import EngineSnapshot, Histogram
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.requests.journal import Outcomes


class Alias(msgspec.Struct, frozen=True):
    """Another name of a metric of ours, with the same meaning there.

    labels  what its labels are called there; none: one value, the sum of all
    words   what values of labels are called there, where it is not as here
    """

    name: str
    labels: tuple[str, ...] = ()
    words: Mapping[str, str] = {}


def _of(*names: str) -> tuple[Alias, ...]:
    return tuple(Alias(name) for name in names)


# Our name -> what llama-server and vLLM call it; of counters without `_total`.
ALIASES: dict[str, tuple[Alias, ...]] = {
    "worker_requests_running": _of("llamacpp:requests_processing", "vllm:num_requests_running"),
    "worker_requests_waiting": _of("llamacpp:requests_deferred", "vllm:num_requests_waiting"),
    "worker_requests": (Alias("vllm:request_success", ("finished_reason",), {"aborted": "abort"}),),
    "worker_prompt_tokens": _of("vllm:prompt_tokens"),
    "worker_prompt_tokens_computed": _of("llamacpp:prompt_tokens"),
    "worker_tokens_generated": _of("llamacpp:tokens_predicted", "vllm:generation_tokens"),
    "worker_kv_cells_live_ratio": _of(
        "llamacpp:kv_cache_usage_ratio", "vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"
    ),
    "worker_prefix_queries": _of("vllm:gpu_prefix_cache_queries", "vllm:prefix_cache_queries"),
    "worker_prefix_hits": _of(
        "llamacpp:prompt_tokens_cached",
        "vllm:gpu_prefix_cache_hits",
        "vllm:prefix_cache_hits",
        "vllm:prompt_tokens_cached",
    ),
    "worker_preemptions": _of("vllm:num_preemptions"),
    "worker_drafts": _of("llamacpp:spec_decode_num_drafts", "vllm:spec_decode_num_drafts"),
    "worker_draft_tokens": _of(
        "llamacpp:spec_decode_num_draft_tokens", "vllm:spec_decode_num_draft_tokens"
    ),
    "worker_draft_tokens_accepted": _of(
        "llamacpp:spec_decode_num_accepted_tokens", "vllm:spec_decode_num_accepted_tokens"
    ),
    "worker_steps": _of("llamacpp:n_decode"),
    "worker_longest_sequence_tokens": _of("llamacpp:n_tokens_max"),
    "worker_queue_seconds": _of("vllm:request_queue_time_seconds"),
    "worker_first_token_seconds": _of("vllm:time_to_first_token_seconds"),
    # The second one is what vLLM called it first.
    "worker_inter_token_seconds": _of(
        "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"
    ),
    "worker_read_seconds": _of("vllm:request_prefill_time_seconds"),
    "worker_write_seconds": _of("vllm:request_decode_time_seconds"),
    "worker_request_seconds": _of("vllm:e2e_request_latency_seconds"),
    "worker_request_prompt_tokens": _of("vllm:request_prompt_tokens"),
    "worker_request_generated_tokens": _of("vllm:request_generation_tokens"),
}


def _prompt_seconds(engine: EngineSnapshot) -> Reading:
    text = "Seconds of steps that read prompts"
    return Reading("counter", "llamacpp:prompt_seconds", text, engine.stats.prompt_s)


def _predicted_seconds(engine: EngineSnapshot) -> Reading:
    text, spent = "Seconds in which requests wrote, added up", engine.stats.write_time.total
    return Reading("counter", "llamacpp:tokens_predicted_seconds", text, spent)


def _tokens_by_source(engine: EngineSnapshot) -> Reading:
    stats = engine.stats
    sources = {
        ("local_compute",): stats.computed_tokens,
        ("local_cache_hit",): stats.shared_tokens,
        ("external_kv_transfer",): stats.memory_tokens + stats.disk_tokens,
    }
    name, text = "vllm:prompt_tokens_by_source", "Prompt tokens computed, found, brought back"
    return Reading("counter", name, text, sources, ("source",))


# What others divide otherwise.
SUMS = (_prompt_seconds, _predicted_seconds, _tokens_by_source)
RATIOS = (
    Ratio(
        "llamacpp:n_busy_slots_per_decode",
        "Sequences that run, mean over all steps",
        lambda engine: (engine.stats.num_busy, engine.num_steps),
    ),
    Ratio(
        "llamacpp:prompt_tokens_seconds",
        "Prompt tokens read a second since the last scrape",
        lambda engine: (engine.stats.computed_tokens, engine.stats.prompt_s),
        fresh=True,
    ),
    Ratio(
        "llamacpp:predicted_tokens_seconds",
        "Tokens a second that a sequence gets, mean since the last scrape",
        lambda engine: (sum(engine.stats.inter_token.counts), engine.stats.inter_token.total),
        fresh=True,
    ),
)


class WorkerCollector(Collector):
    """Reads the counters when asked; the engine's thread is never waited for."""

    def __init__(self, worker: Worker, loaded: Loaded, outcomes: Outcomes, window: Window) -> None:
        self._worker = worker
        self._loaded = loaded
        self._outcomes = outcomes
        self._window = window

    def collect(self) -> Iterable[Metric]:
        """All families, each under all its names."""
        model, engine = self._loaded.model_id, self._loaded.engine.snapshot
        # All names of a sum shall tell the same.
        engine = msgspec.structs.replace(engine, stats=engine.stats.copy())
        for reading in readings(self._worker, self._loaded, engine, self._outcomes):
            yield _family(reading, Alias(reading.name, reading.labels), model)
            for alias in ALIASES.get(reading.name, ()):
                yield _family(reading, alias, model)
        others = [sums(engine) for sums in SUMS]
        for ratio in RATIOS:
            value = self._window.value(ratio, engine)
            others.append(Reading("gauge", ratio.name, ratio.help, value))
        for reading in others:
            yield _family(reading, Alias(reading.name, reading.labels), model)


def _family(reading: Reading, shown: Alias, model: str) -> Metric:
    """A reading under one of its names. All have the label `model_name`, as in vLLM."""
    labels = ["model_name", *shown.labels]
    value = reading.value
    if isinstance(value, Histogram):
        family = HistogramMetricFamily(shown.name, reading.help, labels=labels)
        family.add_metric([model], _buckets(value, reading.unit), value.total / reading.unit)
        return family
    kind = CounterMetricFamily if reading.kind == "counter" else GaugeMetricFamily
    family = kind(shown.name, reading.help, labels=labels)
    if isinstance(value, Mapping) and not shown.labels:
        value = sum(value.values())
    values = value if isinstance(value, Mapping) else {(): value}
    for words, number in values.items():
        family.add_metric([model, *(shown.words.get(word, word) for word in words)], number)
    return family


def _buckets(histogram: Histogram, unit: float) -> list[tuple[str, float]]:
    """Upper borders, and how many values are not above them."""
    borders = [str(round(border / unit, 6)) for border in histogram.borders]
    below, buckets = 0, list[tuple[str, float]]()
    for border, count in zip([*borders, "+Inf"], histogram.counts, strict=True):
        below += count
        buckets.append((border, float(below)))
    return buckets


def metrics_text(
    worker: Worker, loaded: Loaded, outcomes: Outcomes, window: Window, accept: str
) -> tuple[bytes, str]:
    """All metrics, and their media type; as OpenMetrics for who accepts that."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(WorkerCollector(worker, loaded, outcomes, window))
    # prometheus_client's own choice fails on versions that are no numbers.
    if "application/openmetrics-text" in accept:
        # Other ways to escape make `llamacpp_` of `llamacpp:`.
        encode = cast("Any", openmetrics).generate_latest  # without types
        return encode(registry, escaping=openmetrics.ALLOWUTF8), openmetrics.CONTENT_TYPE_LATEST
    # Litestar adds the charset, and Prometheus refuses a type that names one twice.
    return generate_latest(registry), "text/plain; version=0.0.4"
