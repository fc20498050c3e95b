"""What is told about the states of ended sequences: in /metrics, /health and /info."""

from __future__ import annotations

import pytest

from tests.support import http
from tests.support.metrics import fake_worker, scrape
from tests.support.programs.processes import Server
from worker.api.info.about import health_of
from worker.api.info.collector import WorkerCollector
from worker.api.info.readings import Window
from worker.cache.store import CacheStats
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.requests.journal import Outcomes

KEPT = CacheStats(
    memory_bytes=11, memory_limit=12, kept_tokens=13, restored_tokens=14, evicted_tokens=15,
    disk_limit=16, disk_bytes=17, disk_written=18, disk_read=19, disk_errors=20,
)  # fmt: skip
# Metric -> the field that it shows.
SHOWN = {
    "worker_cache_bytes": "memory_bytes",
    "worker_cache_limit_bytes": "memory_limit",
    "worker_cache_tokens": "kept_tokens",
    "worker_cache_restored_tokens_total": "restored_tokens",
    "worker_cache_evicted_tokens_total": "evicted_tokens",
    "worker_cache_disk_limit_bytes": "disk_limit",
    "worker_cache_disk_bytes": "disk_bytes",
    "worker_cache_disk_written_bytes_total": "disk_written",
    "worker_cache_disk_read_bytes_total": "disk_read",
    "worker_cache_disk_errors_total": "disk_errors",
}


@pytest.fixture
def told() -> tuple[Worker, Loaded]:
    """A worker and its model, of which only counters are there."""
    return fake_worker(KEPT)


def test_every_figure_is_a_metric(told: tuple[Worker, Loaded]) -> None:
    """Each field of the cache's figures stands in /metrics, under its own name."""
    assert set(SHOWN.values()) == set(CacheStats.__struct_fields__)
    samples = {
        sample.name: sample.value
        for family in WorkerCollector(*told, Outcomes(), Window()).collect()
        for sample in family.samples
    }
    assert {name: samples[name] for name in SHOWN} == {
        name: getattr(KEPT, field) for name, field in SHOWN.items()
    }


def test_health_says_what_is_held_and_what_may_be(told: tuple[Worker, Loaded]) -> None:
    """A manager that adds up memory sees by how much this worker may still grow."""
    health = health_of(*told)
    assert (health.memory_bytes, health.cache_bytes, health.cache_limit_bytes) == (1000, 11, 12)


def test_all_say_the_same(server: Server) -> None:
    """/health, /info and /metrics of a worker without a folder agree on its limits."""
    health, metrics = server.health(), scrape(server.url)
    info = http.get(server.url + "/info").json()
    limit = metrics["worker_cache_limit_bytes"]
    assert health["cache_limit_bytes"] == info["cache_limit_bytes"] == limit
    assert 0 <= health["cache_bytes"] <= limit
    assert info["cache_disk_limit_bytes"] == metrics["worker_cache_disk_limit_bytes"] == 0
