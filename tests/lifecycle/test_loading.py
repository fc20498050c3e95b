"""What is said of a model as it is opened."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from worker import log, machine
from worker.demo import MODEL_PATH
from worker.lifecycle.loading import load_backend, usual_threads
from worker.lifecycle.prepared import prepare
from worker.model.config import load_config
from worker.settings import Settings


@pytest.mark.parametrize(
    ("keys", "values", "said"), [("f16", "f16", 0), ("q8_0", "f16", 1), ("f16", "q8_0", 1)]
)
def test_a_quantised_cache_on_a_cpu_is_told(keys: str, values: str, said: int) -> None:
    """One line with the factor and the next step, and none where the cache is not quantised."""
    settings = Settings(
        ctx_size=256, parallel=1, threads=1, threads_batch=1, n_gpu_layers=0,
        cache_type_k=keys, cache_type_v=values,
    )  # fmt: skip
    log.configure("console")
    try:
        with capture_logs() as lines:
            load_backend(MODEL_PATH, settings, prepare(MODEL_PATH, settings)).close()
    finally:
        log.configure("console", "error")
    told = [line for line in lines if "quantized KV cache" in str(line["event"])]
    assert len(told) == said
    assert all("3 to 4 times" in line["event"] and "bench" in line["hint"] for line in told)


@pytest.mark.parametrize(
    ("size", "cpus", "threads"),
    [(10 << 20, 8, 1), (40 << 20, 8, 2), (1 << 30, 8, 8), (1 << 30, 1, 1)],
)
def test_threads_by_the_size_of_the_model(
    size: int, cpus: int, threads: int, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small model has few, and no CPU has two."""
    monkeypatch.setattr(machine, "usable_cpus", lambda: cpus)
    config = msgspec.structs.replace(load_config(tiny), size_bytes=size)
    assert usual_threads(config) == threads
