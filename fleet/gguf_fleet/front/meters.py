"""What the fleet counts, and the metrics of its workers beside it, as one Prometheus text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from gguf_fleet.roster import Roster

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "fleet"
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (.+)")


class Meters:
    """Counters of one gateway."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._answers = self._counter("requests", "Requests answered.", "model", "status")
        self._routed = self._counter("routed", "Requests that a replica accepted.", "model")
        self._retries = self._counter("retries", "Further replicas asked for a request.", "model")
        self._continued = self._counter(
            "continued", "Streams that another replica went on with.", "model"
        )
        self._left = self._counter("left", "Clients that left before their answer ended.", "model")
        self._members = self._gauge("replicas", "Replicas that are ready.", "model")
        self._loads = self._gauge("replica_requests", "Requests under way.", "model", "replica")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def count_answer(self, model: str, status: int) -> None:
        self._answers.labels(model, str(status)).inc()

    def count_route(self, model: str) -> None:
        self._routed.labels(model).inc()

    def count_retry(self, model: str) -> None:
        """A further replica is asked for the same request."""
        self._retries.labels(model).inc()

    def count_continuation(self, model: str) -> None:
        """A replica goes on with a stream that another one has begun."""
        self._continued.labels(model).inc()

    def count_leaver(self, model: str) -> None:
        self._left.labels(model).inc()

    def text(self, roster: Roster, counts: dict[str, int], workers: Iterable[Labelled]) -> bytes:
        """All of it; workers: what each worker's own /metrics says."""
        self._members.clear()
        self._loads.clear()
        for model in roster.affinities:
            self._members.labels(model).set(len(roster.members(model)))
        for model, member in roster.all():
            self._loads.labels(model, member.id).set(counts.get(member.id, 0))
        return generate_latest(self.registry) + merge(workers).encode()


# (model, replica, text of /metrics)
Labelled = tuple[str, str, str]


def merge(workers: Iterable[Labelled]) -> str:
    """Several workers' metrics as one text, each sample with its model and replica.

    All samples of a metric stand together below one HELP and TYPE, as the format demands.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for model, replica, text in workers:
        labels = f'model="{model}",replica="{replica}"'
        name = ""
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                name = line.split(" ", 3)[2]
                lines = heads.setdefault(name, [])
                if line not in lines:
                    lines.append(line)
            elif match := _SAMPLE.fullmatch(line):
                own = f",{match[2]}" if match[2] else ""
                sample = f"{match[1]}{{{labels}{own}}} {match[3]}"
                samples.setdefault(name, []).append(sample)
    lines = [line for name in heads for line in (*heads[name], *samples.get(name, []))]
    return "".join(f"{line}\n" for line in lines)
