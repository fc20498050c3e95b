"""Our counters as Prometheus text, under our names and those that others scrape."""

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

from worker.api.info.aliases import ALIASES, RATIOS, SUMS, Alias
from worker.api.info.readings import Reading, Window, readings
from worker.engine.stats import Histogram
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.requests.journal import Outcomes


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
