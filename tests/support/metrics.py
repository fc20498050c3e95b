"""What GET /metrics says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from prometheus_client.parser import text_string_to_metric_families

from tests.support import http
from worker.cache.store import CacheStats
from worker.engine.stats import EngineSnapshot, Stats
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker


def scrape(url: str) -> dict[str, float]:
    """Sample name, with the values of all labels but the model's behind it -> value."""
    answer = http.get(url + "/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        sample.name
        + "".join(
            value for label, value in sample.labels.items() if label != "model_name"
        ): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def count_ended(url: str, outcome: str = "") -> int:
    """How many requests of a worker ended so: stop, length, aborted, error; "": all of them."""
    name = "worker_requests_total" + outcome
    return int(sum(value for sample, value in scrape(url).items() if sample.startswith(name)))


def fake_worker(kept: CacheStats | None = None) -> tuple[Worker, Loaded]:
    """A worker and its model, of which only counters are there."""
    snapshot = EngineSnapshot(
        max_running=4, num_waiting=0, running=(), free_cells=100, cached_cells=0, live_cells=0,
        num_steps=0, num_preempted=0, stats=Stats(), kept=kept or CacheStats(),
    )  # fmt: skip
    worker: Any = SimpleNamespace(is_stalled=False, is_sleeping=False, started_at=0.0)
    loaded: Any = SimpleNamespace(
        engine=SimpleNamespace(snapshot=snapshot),
        backend=SimpleNamespace(
            max_length=512,
            vocab_size=320,
            unified=False,
            context=SimpleNamespace(threads=1, threads_batch=2),
            spin=SimpleNamespace(is_shared=False),
        ),
        is_fused=True,
        media=None,
        config=SimpleNamespace(quant="F16"),
        model_id="m",
        memory_bytes=1000,
        vram_bytes=0,
    )
    return cast(Worker, worker), cast(Loaded, loaded)
